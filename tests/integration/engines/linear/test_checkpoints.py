"""Layers of quantised checkpoints, one per scheme that an engine knows: HK computes what the
checkpoint's own numbers say, shard by shard."""

from __future__ import annotations

import re

import pytest
import torch

from hk_backend.devices import device_for
from hk_backend.engine.linear.route import is_attached
from tests.integration.shared.checkpoints import WIDTHS, K, Scheme, x_of
from tests.integration.shared.linear.devices import (
    on_devices,
    unserved,
)
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.layers import check_shards, layer_of
from tests.integration.shared.linear.named_tensors import bfloat16
from tests.ops.linear_cases import Layer

pytestmark = pytest.mark.usefixtures("linear_route")


@on_devices
def test_every_shard_by_its_own_scale(
    engine: LinearEngine, any_checkpoint: Scheme, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Within the bound that the format has, element by element; or refused, with the reason."""
    if why := unserved(device, any_checkpoint.scale_kind):
        assert re.search(why, refusal(engine, any_checkpoint, caplog))
        return
    layer = layer_of(engine, any_checkpoint)
    layer.quant_method.process_weights_after_loading(layer)  # again: there is nothing to do
    assert is_attached(layer)
    held = sum(parameter.numel() for parameter in layer.parameters())
    assert held == 0, "the checkpoint's own tensors are still there"
    assert layer.hk_packed.layout == device_for("cpu").weight_layout
    out = engine.forward(layer, x_of())
    expected = any_checkpoint.layers(x_of(), any_checkpoint.tensors())
    check_shards(expected, out)
    assert_shards_are_not_alike(expected, out)


def assert_shards_are_not_alike(shards: list[Layer], out: torch.Tensor) -> None:
    """The scale of one shard for another would be seen."""
    _, second, third = shards
    second.scales, third.scales = third.scales, second.scales
    with pytest.raises(AssertionError):
        check_shards(shards, out)


def refusal(engine: LinearEngine, scheme: Scheme, caplog: pytest.LogCaptureFixture) -> str:
    """Why HK does not serve the layer; the engine may have a kernel of its own, or stop."""
    try:
        layer = engine.merged(engine.config_of(scheme.config), torch.bfloat16, K, WIDTHS)
    except Exception as error:
        return f"{error}\n{caplog.text}"
    assert not is_attached(layer)
    return engine.why_left(layer)


@on_devices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_fp8_while_loading(engine: LinearEngine, device: str, dtype: torch.dtype) -> None:
    """A scale per output channel that maps its largest value to 448, and codes by it."""
    tensors = {name: weight.to(dtype) for name, weight in bfloat16().items()}
    layer = engine.loaded(engine.online("hk_fp8"), tensors, dtype=dtype)
    assert is_attached(layer)
    x, shards = x_of().to(dtype), []
    for weight in tensors.values():
        scales = weight.abs().amax(1, keepdim=True).float() / 448
        codes = (weight.float() * (1 / scales)).to(torch.float8_e4m3fn)
        shards.append(Layer(x, codes, "fp8_e4m3fn", scales, "token"))
    check_shards(shards, engine.forward(layer, x))
