"""Layers of quantised checkpoints, one per scheme that an engine knows: HK computes what the
checkpoint's own numbers say, shard by shard."""

from __future__ import annotations

import re

import pytest
import torch

from hk_backend.devices import device_for
from hk_backend.engine.linear.options import FORMATS_OF
from hk_backend.engine.linear.route import is_attached
from hk_backend.quantize.recipe import RECIPES
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.shared.linear.devices import (
    DEVICES,
    MISSING,
    on_devices,
    on_gfx950,
    unserved,
)
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.named_tensors import bfloat16
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, WIDTHS, Checkpoint, K, x_of
from tests.ops.linear_cases import Layer
from tests.ops.linear_oracle import check_result

pytestmark = pytest.mark.usefixtures("linear_route")


@on_devices
def test_every_shard_by_its_own_scale(
    engine: LinearEngine, any_checkpoint: Checkpoint, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Within the bound that the format has, element by element; or refused, with the reason."""
    if why := unserved(device, any_checkpoint.scale_kind):
        assert re.search(why, refusal(engine, any_checkpoint, caplog))
        return
    shards = any_checkpoint.tensors()
    config = engine.config_of(any_checkpoint.config)
    layer = engine.load(engine.merged(config, torch.bfloat16, K, WIDTHS), shards)
    layer.quant_method.process_weights_after_loading(layer)  # again: there is nothing to do
    assert is_attached(layer)
    held = sum(parameter.numel() for parameter in layer.parameters())
    assert held == 0, "the checkpoint's own tensors are still there"
    assert layer.hk_packed.layout == device_for("cpu").weight_layout
    out = engine.forward(layer, x_of())
    for part, shard in zip(
        out.split(WIDTHS, -1), any_checkpoint.layers(x_of(), shards), strict=True
    ):
        check_result(shard, part.contiguous())


def refusal(engine: LinearEngine, checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture) -> str:
    """Why HK does not serve the layer; the engine may have a kernel of its own, or stop."""
    config = engine.config_of(checkpoint.config)
    try:
        layer = engine.merged(config, torch.bfloat16, K, WIDTHS)
    except Exception as error:
        return f"{error}\n{caplog.text}"
    assert not is_attached(layer)
    return engine.why_left(layer)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (device, name)
        for device in DEVICES
        for name, recipe in RECIPES.items()
        if "mxfp6" not in name and not unserved(device, recipe.granularity)
    ],
    indirect=["device"],
)
def test_what_quantize_writes(engine: LinearEngine, device: str, name: str) -> None:
    """`hk-backend quantize --format NAME`: the engine reads weights and activations as written."""
    recipe, generator = RECIPES[name], torch.Generator().manual_seed(0)
    parts = [
        recipe.quantize((torch.randn(n, K, generator=generator) * 4.0**shard).bfloat16())
        for shard, n in enumerate(WIDTHS)
    ]
    activations = recipe.activations[0]
    config = engine.config_of(recipe.quantization_config(activations, []))
    layer = engine.merged(config, torch.bfloat16, K, WIDTHS)
    stored = [part.name for part in recipe.stored(WIDTHS[0], K)]
    engine.load(layer, {suffix: [part[i] for part in parts] for i, suffix in enumerate(stored)})
    assert is_attached(layer)
    x = x_of()
    x[:, :128] *= 64  # a scale per token instead of 128 channels rounds the others more coarsely
    out = engine.forward(layer, x)
    for part, (codes, scales) in zip(out.split(WIDTHS, -1), parts, strict=True):
        check_result(Layer(x, codes, recipe.format, scales, activations), part.contiguous())


@on_devices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_fp8_while_loading(engine: LinearEngine, device: str, dtype: torch.dtype) -> None:
    """A scale per output channel that maps its largest value to 448, and codes by it."""
    tensors = {name: weight.to(dtype) for name, weight in bfloat16().items()}
    layer = engine.loaded(engine.online("hk_fp8"), tensors, dtype=dtype)
    assert is_attached(layer)
    x = x_of().to(dtype)
    for part, weight in zip(
        engine.forward(layer, x).split(WIDTHS, -1), tensors.values(), strict=True
    ):
        scales = weight.abs().amax(1, keepdim=True).float() / 448
        codes = (weight.float() * (1 / scales)).to(torch.float8_e4m3fn)
        shard = Layer(x, codes, "fp8_e4m3fn", scales, "token")
        check_result(shard, part.contiguous())


@on_gfx950
@pytest.mark.parametrize("method", [name for name in FORMATS_OF if name != "hk_fp8"])
def test_other_formats_while_loading(engine: LinearEngine, device: str, method: str) -> None:
    """There is nothing else to compute them: the error says how to leave a layer alone."""
    with pytest.raises(ValueError, match=rf"--quantization {method}: {MISSING['mx']}.*`ignore`"):
        engine.merged(engine.online(method), torch.bfloat16, K, WIDTHS)


def test_one_scale_for_all_shards_would_be_seen() -> None:
    """The tolerance above tells per-shard scales from an engine's requantised ones."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    shards = checkpoint.tensors()
    largest = torch.stack(shards["weight_scale"]).max()
    requantised = [
        (weight.float() * scale / largest).to(torch.float8_e4m3fn)
        for weight, scale in zip(shards["weight"], shards["weight_scale"], strict=True)
    ]
    theirs = checkpoint.expected(x_of(), {"weight": requantised, "weight_scale": [largest] * 3})
    expected = checkpoint.expected(x_of(), shards)
    assert largest_error(theirs[:, -128:], expected[:, -128:]) > tolerance(torch.bfloat16)
