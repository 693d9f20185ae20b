"""Unquantised layers: packed, released, or left with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import layer as hk_layer
from hk_sglang.linear import model
from sglang.srt.layers.linear import (
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)

from hk_backend import machine, reference
from hk_backend.engine import evidence
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_sglang.linear_layers import (
    environment,
    installed,
    load,
    made,
    merged,
    rank,
    values,
)

K, WIDTHS = 72, [40, 24]
FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


@pytest.fixture(autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
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


def test_processed_twice() -> None:
    """Without new weights there is nothing to do."""
    layer = load(layer_of(), {"weight": weights()})
    layer.quant_method.process_weights_after_loading(layer)
    assert layer.hk_left == ""
    assert_computes(layer, torch.cat(weights()))


def test_a_layer_in_a_sum_and_into_a_buffer() -> None:
    """Two more ways in which SGLang's models call the method."""
    layer = load(layer_of(), {"weight": weights()})
    x, addend = values((5, K), seed=9), values((5, 64), seed=3)
    alone = layer.quant_method.apply(layer, x)
    both = layer.quant_method.apply_with_addend(layer, x, addend)
    assert torch.equal(both, alone + addend)
    out = torch.empty(5, 64, dtype=torch.bfloat16)
    assert layer.quant_method.apply_into(layer, x, out) is out
    assert torch.equal(out, alone)
    assert routes.counters("linear").served.calls == 3


@pytest.mark.parametrize("number", [0, 1])
def test_two_ranks(number: int) -> None:
    """Each rank packs its own part: rows of q, k and v, columns of a row-parallel layer."""
    with rank(number, 2):
        heads = {"head_size": 8, "total_num_heads": 4, "total_num_kv_heads": 2, "bias": False}
        qkv = made(QKVParallelLinear, torch.bfloat16, K, **heads, prefix="model.qkv_proj")
        down = made(RowParallelLinear, torch.bfloat16, 144, 40, bias=False, prefix="down_proj")
    shards = {"q": values((32, K), seed=1), "k": values((16, K), seed=2)}
    shards["v"] = values((16, K), seed=3)
    for name, value in shards.items():
        qkv.weight.weight_loader(qkv.weight, value, name)
    whole = values((40, 144), seed=4)
    down.weight.weight_loader(down.weight, whole)
    for layer in (qkv, down):
        layer.quant_method.process_weights_after_loading(layer)
        assert is_attached(layer)
    assert_computes(qkv, torch.cat([value.chunk(2)[number] for value in shards.values()]))
    assert_computes(down, whole.chunk(2, 1)[number].contiguous())


def test_calls_are_counted() -> None:
    layer = load(layer_of(), {"weight": weights()})
    layer(values((3, K)))
    layer(values((2, 4, K)))
    served = routes.counters("linear").served
    assert (served.calls, served.tokens) == (2, 11)


def test_compiled() -> None:
    layer = load(layer_of(), {"weight": weights()})
    compiled = torch.compile(layer.quant_method.apply, backend="eager", fullgraph=True)
    x = values((5, K), seed=9)
    assert torch.equal(compiled(layer, x), layer.quant_method.apply(layer, x))
    assert routes.counters("linear").served.calls == 2


def test_lora_around_a_layer() -> None:
    """SGLang's wrapper asks the layer's method, and adds to what it says."""
    from sglang.srt.lora.layers import ReplicatedLinearWithLoRA

    layer = made(ReplicatedLinear, torch.bfloat16, K, 40, bias=False, prefix="model.o_proj")
    layer.weight.weight_loader(layer.weight, values((40, K)))
    layer.quant_method.process_weights_after_loading(layer)
    idle = SimpleNamespace(get_batch_info=lambda: None)
    wrapped = ReplicatedLinearWithLoRA(layer, idle)
    out, _ = wrapped(values((5, K), seed=9))
    expected = reference.linear(values((5, K), seed=9), values((40, K)), "bf16")
    assert largest_error(out, expected) <= tolerance(torch.bfloat16)
    assert routes.counters("linear").served.calls == 1


# -- left to SGLang


def left(layer: Any) -> str:
    """Why SGLang computes `layer`; it does."""
    assert not is_attached(layer)
    return model.why_left(layer)


def test_a_weight_with_more_axes() -> None:
    layer = layer_of()
    layer.weight = torch.nn.Parameter(values((64, 1, 4)), requires_grad=False)
    layer.quant_method.process_weights_after_loading(layer)
    assert left(layer) == "a weight with 3 axes"


@pytest.mark.parametrize("name", sorted(hk_layer.READ_BY_MODELS))
def test_a_weight_that_models_read(name: str) -> None:
    layer = load(layer_of(name=f"model.layers.0.{name}"), {"weight": weights()})
    assert left(layer) == "SGLang's models may read its weight themselves"
    assert torch.equal(layer.weight, torch.cat(weights()))


def test_a_weight_that_models_read_is_not_quantised() -> None:
    """There is nobody to compute it then: the error says how to leave it alone."""
    from sglang.srt.layers.quantization import get_quantization_config

    config = get_quantization_config("hk_fp8")()
    with pytest.raises(ValueError, match=r"models may read its weight themselves.*`ignore`"):
        merged(config, torch.bfloat16, K, WIDTHS, prefix="model.layers.0.kv_b_proj")


def test_a_shape_outside_the_envelope() -> None:
    layer = merged(None, torch.bfloat16, 12, WIDTHS)
    load(layer, {"weight": [values((width, 12)) for width in WIDTHS]})
    assert left(layer) == "12 input features are not a positive multiple of 8"
    assert_computes(layer, torch.cat([values((width, 12)) for width in WIDTHS]))


def test_deterministic_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hk_layer, "is_deterministic", lambda: True)
    layer = load(layer_of(), {"weight": weights()})
    assert left(layer) == "--enable-deterministic-inference: not proven for HK"


def test_deterministic_inference_is_what_the_server_says() -> None:
    from sglang.srt.runtime_context import get_context

    assert not hk_layer.is_deterministic()
    with get_context().override_server_args(enable_deterministic_inference=True):
        assert hk_layer.is_deterministic()


def test_a_device_that_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, HK_DEVICE="emulated:gfx950")
    layer = load(layer_of(), {"weight": weights()})
    assert left(layer) == "no linear kernels for gfx950 yet"
    assert_computes(layer, torch.cat(weights()))


def test_a_route_that_is_off() -> None:
    routes.disable("linear", "because")
    layer = load(layer_of(), {"weight": weights()})
    assert left(layer) == "because"


def test_another_dtype() -> None:
    layer = layer_of()
    layer.weight = torch.nn.Parameter(torch.ones(64, K, dtype=torch.int8), requires_grad=False)
    layer.quant_method.process_weights_after_loading(layer)
    assert left(layer) == "a weight in torch.int8"


def test_a_method_of_somebody_else() -> None:
    from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod

    class Theirs(UnquantizedLinearMethod):  # type: ignore[misc]
        def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
            return torch.nn.functional.linear(x, layer.weight, bias)

    layer = layer_of()
    layer.quant_method = Theirs()
    load(layer, {"weight": weights()})
    assert left(layer) == "Theirs multiplies by itself"


def test_bfloat16_on_a_cpu_with_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to torch, unless the user has named a device; float16 is served all the same."""
    monkeypatch.setattr(machine, "advertises_amx", lambda: True)
    by_default(monkeypatch, ONEDNN_MAX_CPU_ISA="AVX512_CORE_AMX")
    why = "faster without HK: linear in bfloat16, on a CPU with AMX"
    assert left(load(layer_of(), {"weight": weights()})).startswith(why)
    assert is_attached(load(layer_of(torch.float16), {"weight": weights(dtype=torch.float16)}))
    environment(monkeypatch, ONEDNN_MAX_CPU_ISA="AVX512_CORE_FP16")
    assert is_attached(load(layer_of(), {"weight": weights()}))


def test_float32_which_decodes_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to SGLang by default, with the figure; served where the user says so."""
    monkeypatch.setattr(evidence, "host_isa", lambda operator: "avx2")
    by_default(monkeypatch)
    single = {"weight": weights(dtype=torch.float32)}
    why = "faster without HK: linear in float32, through SGLang: a decoded token takes 1.10"
    assert left(load(layer_of(torch.float32), single)).startswith(why)
    environment(monkeypatch, HK_EVIDENCE="ignore")
    assert is_attached(load(layer_of(torch.float32), single))


def by_default(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """The environment of a user who has named no device, and decided nothing else."""
    environment(monkeypatch, HK_DEVICE="auto", HK_EVIDENCE="use", **variables)
