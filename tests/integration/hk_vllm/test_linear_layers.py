"""Unquantised layers and the LM head: packed, released, reloaded, or left with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hk_vllm.linear import model
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype

from hk_backend import machine, reference
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_vllm.linear_layers import (
    installed,
    load,
    merged,
    one_rank,
    reload,
    values,
)

K, WIDTHS = 72, [40, 24]
FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


@pytest.fixture(scope="module", autouse=True)
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_rank(tmp_path_factory.mktemp("rank")), torch.no_grad():
        yield


@pytest.fixture(autouse=True)
def route(rank: None) -> Iterator[None]:
    with installed():
        yield


def weights(seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    return [values((width, K), dtype, seed + width) for width in WIDTHS]


def layer_of(dtype: torch.dtype = torch.bfloat16, name: str = "model.gate_up_proj") -> Any:
    return merged(None, dtype, K, WIDTHS, prefix=name)


def assert_computes(layer: Any, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    x = values((5, weight.shape[1]), weight.dtype, seed=9)
    expected = reference.linear(x, weight, FORMATS[weight.dtype], bias=bias)
    out = layer.quant_method.apply(layer, x, bias)
    assert largest_error(out, expected) <= tolerance(weight.dtype)


def head_of(dtype: torch.dtype = torch.bfloat16) -> Any:
    """An LM head with a table of its own."""
    with set_default_torch_dtype(dtype):
        head = ParallelLMHead(128, K, prefix="lm_head")
    head.weight_loader(head.weight, values((128, K), dtype))
    head.quant_method.process_weights_after_loading(head)
    return head


# -- served


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_layer_is_packed_and_its_weight_released(dtype: torch.dtype) -> None:
    shards = weights(dtype=dtype)
    layer = load(layer_of(dtype), {"weight": shards})
    assert is_attached(layer)
    assert layer.weight.shape == (0,)
    assert layer.weight.dtype == dtype
    assert_computes(layer, torch.cat(shards))
    assert_computes(layer, torch.cat(shards), values((64,), dtype))


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_an_lm_head_keeps_its_table(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM reads it, and a tied one is the embedding's."""
    monkeypatch.setattr(get_current_vllm_config().model_config, "head_dtype", dtype)
    head = head_of(dtype)
    assert is_attached(head)
    assert torch.equal(head.weight, values((128, K), dtype))
    assert_computes(head, values((128, K), dtype))


def test_an_embedding_stays_a_table() -> None:
    table = VocabParallelEmbedding(128, K, params_dtype=torch.bfloat16)
    table.weight_loader(table.weight, values((128, K)))
    table.quant_method.process_weights_after_loading(table)
    assert not is_attached(table)
    ids = torch.tensor([3, 127])
    assert torch.equal(table(ids), values((128, K))[ids])


# -- weights that arrive again, or not


def test_processed_twice() -> None:
    """Without new weights there is nothing to do."""
    layer = load(layer_of(), {"weight": weights()})
    layer.quant_method.process_weights_after_loading(layer)
    assert layer.hk_left == ""
    assert_computes(layer, torch.cat(weights()))
    head = head_of()
    head.quant_method.process_weights_after_loading(head)
    assert_computes(head, values((128, K)))


def test_reload() -> None:
    """New weights are packed into the buffers that compiled graphs hold."""
    layer = layer_of()
    record_metadata_for_reloading(layer)
    load(layer, {"weight": weights()})
    address = layer.hk_data.data_ptr()
    reload(layer, {"weight": weights(seed=5)})
    assert layer.hk_data.data_ptr() == address
    assert_computes(layer, torch.cat(weights(seed=5)))
    with pytest.raises(AssertionError):
        assert_computes(layer, torch.cat(weights()))


def test_reload_of_a_tied_table() -> None:
    """vLLM reloads the embedding alone: the head's packed copy follows."""
    with set_default_torch_dtype(torch.bfloat16):
        table = VocabParallelEmbedding(128, K)
        head = ParallelLMHead(128, K).tie_weights(table)
    both = torch.nn.ModuleDict({"table": table, "head": head})
    record_metadata_for_reloading(both)
    table.weight_loader(table.weight, values((128, K)))
    for layer in (table, head):
        layer.quant_method.process_weights_after_loading(layer)
    address = head.hk_data.data_ptr()
    reload(both, {"table.weight": [values((128, K), seed=5)]})
    assert head.hk_data.data_ptr() == address
    assert_computes(head, values((128, K), seed=5))


def test_sleep_mode_cannot_reach_a_packed_layer() -> None:
    """vLLM has none on the only platform where HK packs: nothing there takes weights away."""
    assert current_platform.is_cpu()
    assert not current_platform.is_sleep_mode_available()


# -- left to vLLM


def left(layer: Any) -> str:
    """Why vLLM computes `layer`; it does."""
    assert not is_attached(layer)
    why = model.why_left(layer)
    assert why
    return why


def test_a_weight_with_more_axes() -> None:
    layer = layer_of()
    layer.weight = torch.nn.Parameter(values((64, 1, 4)), requires_grad=False)
    layer.quant_method.process_weights_after_loading(layer)
    assert left(layer) == "a weight with 3 axes"


def test_latent_attention() -> None:
    layer = layer_of()
    layer._cpu_skip_gemm_dispatch = True
    load(layer, {"weight": weights()})
    assert left(layer) == "latent attention reads the weight itself"
    assert torch.equal(layer.weight, torch.cat(weights()))


def test_a_shape_outside_the_envelope() -> None:
    layer = merged(None, torch.bfloat16, 12, WIDTHS)
    load(layer, {"weight": [values((width, 12)) for width in WIDTHS]})
    assert left(layer) == "12 input features are not a positive multiple of 8"
    assert_computes(layer, torch.cat([values((width, 12)) for width in WIDTHS]))


def test_a_linear_backend_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_current_vllm_config().kernel_config, "linear_backend", "torch")
    layer = load(layer_of(), {"weight": weights()})
    assert left(layer) == "--linear-backend torch"


def test_batch_invariance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    layer = load(layer_of(), {"weight": weights()})
    assert left(layer) == "VLLM_BATCH_INVARIANT: not proven for HK"


def test_a_head_in_another_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    config = get_current_vllm_config().model_config
    monkeypatch.setattr(config, "head_dtype", torch.float32)
    assert left(head_of()) == "an LM head in torch.float32, the model in torch.bfloat16"


def test_a_device_that_has_no_kernels(environment: Callable[..., None]) -> None:
    environment(HK_DEVICE="emulated:gfx950")
    layer = load(layer_of(), {"weight": weights()})
    assert left(layer) == "no linear kernels for gfx950 yet"
    assert_computes(layer, torch.cat(weights()))


def test_a_route_that_is_off() -> None:
    routes.disable("linear", "because")
    layer = load(layer_of(), {"weight": weights()})
    assert left(layer) == "because"


def test_a_method_of_somebody_else() -> None:
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    class Theirs(UnquantizedLinearMethod):  # type: ignore[misc]
        def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
            return torch.nn.functional.linear(x, layer.weight, bias)

    layer = layer_of()
    layer.quant_method = Theirs()
    load(layer, {"weight": weights()})
    assert left(layer) == "Theirs multiplies by itself"


def test_bfloat16_on_a_cpu_with_amx(
    environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left to torch, unless the user has named a device; float16 is served all the same."""
    monkeypatch.setattr(machine, "advertises_amx", lambda: True)
    environment(HK_DEVICE="auto", HK_EVIDENCE="use", ONEDNN_MAX_CPU_ISA="AVX512_CORE_AMX")
    why = "faster without HK: linear in bfloat16, on a CPU with AMX"
    assert left(load(layer_of(), {"weight": weights()})).startswith(why)
    assert left(head_of()).startswith(why)
    assert is_attached(load(layer_of(torch.float16), {"weight": weights(dtype=torch.float16)}))
    environment(ONEDNN_MAX_CPU_ISA="AVX512_CORE_FP16")
    assert is_attached(load(layer_of(), {"weight": weights()}))
    environment(HK_DEVICE="cpu", ONEDNN_MAX_CPU_ISA="AVX512_CORE_AMX")
    assert is_attached(load(layer_of(), {"weight": weights()}))


def test_calls_are_counted() -> None:
    layer = load(layer_of(), {"weight": weights()})
    layer(values((3, K)))
    layer(values((2, 4, K)))
    served = routes.counters("linear").served
    assert (served.calls, served.tokens) == (2, 11)
