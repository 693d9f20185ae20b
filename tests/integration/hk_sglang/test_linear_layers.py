"""Unquantised layers in SGLang's own ways, and the models that have them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.linear import layer as hk_layer
from hk_sglang.linear import loading, model
from sglang.srt.runtime_context import get_context

from hk_backend.routing.routes import routes
from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_layers import load, merged, online, restored
from tests.integration.shared.linear.devices import on_devices
from tests.integration.shared.linear.layers import WIDTHS, K, left, loaded, values, weights

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


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


@pytest.mark.parametrize("name", sorted(hk_layer.READ_BY_MODELS))
def test_a_weight_that_models_read(name: str) -> None:
    """If it is to be quantised there is nobody to compute it: the error says how to leave it."""
    name = f"model.layers.0.{name}"
    layer = load(merged(None, torch.bfloat16, K, WIDTHS, prefix=name), {"weight": weights()})
    assert left(linear_layers, layer) == "SGLang's models may read its weight themselves"
    assert torch.equal(layer.weight, torch.cat(weights()))
    with pytest.raises(ValueError, match=r"models may read its weight themselves.*`ignore`"):
        merged(online("hk_fp8"), torch.bfloat16, K, WIDTHS, prefix=name)


def test_deterministic_inference() -> None:
    with get_context().override_server_args(device="cpu", enable_deterministic_inference=True):
        layer = loaded(linear_layers)
    assert left(linear_layers, layer) == "--enable-deterministic-inference: not proven for HK"


# -- whole models


@pytest.mark.parametrize("owner", loading.PREPARED)
def test_a_state_that_was_saved(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang loads it into layers that it has processed before: their own tensors must be there."""
    with restored():
        monkeypatch.setattr(owner, "load_model", lambda self: loaded(linear_layers))
        loading.install()
        layer = owner.load_model(SimpleNamespace())
    why = "weights that SGLang has prepared: a load format of saved states"
    assert model.why_left(layer) == why
    assert layer.weight.shape == (64, K)
    assert model.why_left(loaded(linear_layers)) != why
