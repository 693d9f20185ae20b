"""Unquantised layers: packed, released, or left with a reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hk_sglang.linear import layer as hk_layer
from sglang.srt.layers.linear import ReplicatedLinear

from hk_backend import reference
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_layers import load, made, merged
from tests.integration.shared.linear.devices import on_devices
from tests.integration.shared.linear.layers import (
    WIDTHS,
    K,
    left,
    loaded,
    unloaded,
    values,
    weights,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


# -- served


@on_devices
def test_a_layer_in_a_sum_and_into_a_buffer(device: str) -> None:
    """Two more ways in which SGLang's models call the method."""
    layer = loaded(linear_layers)
    x, addend = values((5, K), seed=9), values((5, 64), seed=3)
    alone = layer.quant_method.apply(layer, x)
    both = layer.quant_method.apply_with_addend(layer, x, addend)
    assert torch.equal(both, alone + addend)
    out = torch.empty(5, 64, dtype=torch.bfloat16)
    assert layer.quant_method.apply_into(layer, x, out) is out
    assert torch.equal(out, alone)
    assert routes.counters("linear").served.calls == 3


@on_devices
def test_compiled(device: str) -> None:
    layer = loaded(linear_layers)
    compiled = torch.compile(layer.quant_method.apply, backend="eager", fullgraph=True)
    x = values((5, K), seed=9)
    assert torch.equal(compiled(layer, x), layer.quant_method.apply(layer, x))
    assert routes.counters("linear").served.calls == 2


@on_devices
def test_lora_around_a_layer(device: str) -> None:
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


@pytest.mark.parametrize("name", sorted(hk_layer.READ_BY_MODELS))
def test_a_weight_that_models_read(name: str) -> None:
    layer = load(
        merged(None, torch.bfloat16, K, WIDTHS, prefix=f"model.layers.0.{name}"),
        {"weight": weights()},
    )
    assert left(linear_layers, layer) == "SGLang's models may read its weight themselves"
    assert torch.equal(layer.weight, torch.cat(weights()))


def test_a_weight_that_models_read_is_not_quantised() -> None:
    """There is nobody to compute it then: the error says how to leave it alone."""
    from sglang.srt.layers.quantization import get_quantization_config

    config = get_quantization_config("hk_fp8")()
    with pytest.raises(ValueError, match=r"models may read its weight themselves.*`ignore`"):
        merged(config, torch.bfloat16, K, WIDTHS, prefix="model.layers.0.kv_b_proj")


def test_deterministic_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hk_layer, "is_deterministic", lambda: True)
    layer = loaded(linear_layers)
    assert left(linear_layers, layer) == "--enable-deterministic-inference: not proven for HK"


def test_deterministic_inference_is_what_the_server_says() -> None:
    from sglang.srt.runtime_context import get_context

    assert not hk_layer.is_deterministic()
    with get_context().override_server_args(enable_deterministic_inference=True):
        assert hk_layer.is_deterministic()


def test_another_dtype() -> None:
    layer = unloaded(linear_layers)
    layer.weight = torch.nn.Parameter(torch.ones(64, K, dtype=torch.int8), requires_grad=False)
    layer.quant_method.process_weights_after_loading(layer)
    assert left(linear_layers, layer) == "a weight in torch.int8"
