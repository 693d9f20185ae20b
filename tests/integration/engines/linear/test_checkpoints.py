"""Layers of quantised checkpoints, one per scheme of an engine, loaded by the engine's loader.

HK computes what the checkpoint's own numbers say, shard by shard. It refuses a checkpoint in which
a tensor is missing or broken.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from hk_backend.devices import device_for
from hk_backend.engine.linear.options import FORMATS_OF
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.adapter import LINEAR
from tests.integration.shared.checkpoints import LAYERS, WIDTHS, K, Scheme, x_of
from tests.integration.shared.linear.devices import (
    DEVICES,
    GFX950,
    on_devices,
    on_gfx950,
    unserved,
)
from tests.integration.shared.linear.layers import check_shards, layer_of
from tests.integration.shared.linear.named_tensors import (
    ATTENTION,
    GATE_UP,
    MLP,
    QKV,
    bfloat16,
    named,
    without,
)
from tests.ops.linear_cases import Layer

pytestmark = pytest.mark.usefixtures("linear_route")
FP16 = torch.float16


@on_devices
def test_every_shard_by_its_own_scale(
    any_checkpoint: Scheme, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every element is within the format's bound, or HK refuses the layer and says why."""
    if why := unserved(device, any_checkpoint):
        assert re.search(why, refusal(any_checkpoint, caplog))
        return
    layer = layer_of(LINEAR, any_checkpoint)
    layer.quant_method.process_weights_after_loading(layer)  # a second time, there is nothing to do
    assert is_attached(layer)
    held = sum(parameter.numel() for parameter in layer.parameters())
    assert held == 0, "the checkpoint's own tensors are still there"
    assert layer.hk_packed.layout == device_for("cpu").weight_layout
    out = LINEAR.forward(layer, x_of())
    expected = any_checkpoint.layers(x_of(), any_checkpoint.tensors())
    check_shards(expected, out)
    assert_shards_are_not_alike(expected, out)


def assert_shards_are_not_alike(shards: list[Layer], out: torch.Tensor) -> None:
    """Exchange the scales of two shards, and hold that the check fails."""
    _, second, third = shards
    second.scales, third.scales = third.scales, second.scales
    with pytest.raises(AssertionError):
        check_shards(shards, out)


def refusal(
    scheme: Scheme, caplog: pytest.LogCaptureFixture, dtype: torch.dtype = torch.bfloat16
) -> str:
    """Why HK does not serve the layer. The engine may have a kernel of its own for it, or stop."""
    try:
        layer = LINEAR.merged(LINEAR.config_of(scheme.config), dtype, K, WIDTHS)
    except Exception as error:
        return f"{error}\n{caplog.text}"
    assert not is_attached(layer)
    return LINEAR.why_left(layer)


@on_gfx950
@pytest.mark.parametrize("name", [name for name in LAYERS if unserved(GFX950, LAYERS[name], FP16)])
def test_mx_weights_alone_in_float16(
    device: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert re.search(unserved(device, LAYERS[name], FP16), refusal(LAYERS[name], caplog, FP16))


@on_devices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_fp8_while_loading(device: str, dtype: torch.dtype) -> None:
    """Each output channel gets the scale that maps its largest value to 448, and codes to match."""
    tensors = {name: weight.to(dtype) for name, weight in bfloat16().items()}
    layer = LINEAR.loaded(LINEAR.online("hk_fp8"), tensors, dtype=dtype)
    assert is_attached(layer)
    x, shards = x_of().to(dtype), []
    for weight in tensors.values():
        scales = weight.abs().amax(1, keepdim=True).float() / 448
        codes = (weight.float() * (1 / scales)).to(torch.float8_e4m3fn)
        shards.append(Layer(x, codes, "fp8_e4m3fn", scales, "token"))
    check_shards(shards, LINEAR.forward(layer, x))


online_methods = pytest.mark.parametrize(
    ("device", "method"),
    [(device, method) for device in DEVICES for method in FORMATS_OF],
    indirect=["device"],
)
"""Each device, with each `--quantization hk_...`."""


def why_refused(config: Any, tensors: dict[str, torch.Tensor], **options: Any) -> str:
    with pytest.raises(ValueError) as error:
        LINEAR.loaded(config, tensors, **options)
    return str(error.value)


# -- missing


@pytest.mark.parametrize("part", ["weight", "scale"])
def test_a_tensor_of_a_shard(any_checkpoint: Scheme, part: str) -> None:
    gone = f"{ATTENTION}.k_proj.{getattr(any_checkpoint, part)}"
    tensors = without(named(any_checkpoint.tensors()), gone)
    found = why_refused(LINEAR.config_of(any_checkpoint.config), tensors)
    assert found == f"{gone}: not in the checkpoint"


@pytest.mark.parametrize("gone", [("q_proj",), ("k_proj", "v_proj"), QKV])
@pytest.mark.parametrize("name", ["fp8-static", "quark-tensor-static", "modelopt-fp8"])
def test_scales_of_activations(name: str, gone: tuple[str, ...]) -> None:
    scheme, names = LAYERS[name], [f"{ATTENTION}.{shard}.input_scale" for shard in gone]
    tensors = without(named(scheme.tensors()), *names)
    found = why_refused(LINEAR.config_of(scheme.config), tensors)
    assert found == f"{names[0]}: not in the checkpoint"


@pytest.mark.parametrize("parameter", ["weight_scale", "input_scale"])
def test_the_second_scale_of_two(parameter: str) -> None:
    """A merged tensor has one scale for both shards. Here they have two, but one is missing."""
    scheme, gone = LAYERS["fp8-static"], f"{MLP}.up_proj.{parameter}"
    tensors = without(named(scheme.tensors(), MLP, GATE_UP), gone)
    found = why_refused(LINEAR.config_of(scheme.config), tensors, prefix=f"{MLP}.gate_up_proj")
    assert found == f"{gone}: not in the checkpoint"


@pytest.mark.parametrize("method", ["hk_fp8", "hk_mxfp4"])
@pytest.mark.parametrize("gone", [("q_proj",), ("k_proj", "v_proj"), QKV])
def test_a_missing_weight_that_is_to_be_quantised(method: str, gone: tuple[str, ...]) -> None:
    names = [f"{ATTENTION}.{name}.weight" for name in gone]
    found = why_refused(LINEAR.online(method), without(bfloat16(), *names))
    assert found == f"{names[0]}: not in the checkpoint"


@on_devices
def test_a_merged_layer_with_one_scale(device: str) -> None:
    """Some checkpoints hold q, k and v as one tensor with one scale."""
    scheme, scale = LAYERS["fp8-dynamic"], torch.tensor(0.01)
    weights = scheme.tensors()["weight"]
    merged = {"weight": torch.cat(weights), "weight_scale": scale}
    merged = {f"{ATTENTION}.qkv_proj.{name}": value for name, value in merged.items()}
    layer = LINEAR.loaded(LINEAR.config_of(scheme.config), merged)
    expected = scheme.expected(x_of(), {"weight": weights, "weight_scale": [scale] * 3})
    assert largest_error(LINEAR.forward(layer, x_of()), expected) <= tolerance(torch.bfloat16)


# -- broken

BROKEN = [
    ("fp8-static", "weight_scale", (0.0, -1.0, torch.nan, torch.inf)),
    ("fp8-static", "input_scale", (0.0, torch.nan)),
    ("fp8-block", "weight_scale_inv", (0.0, -1.0, torch.nan, torch.inf)),
    ("ct-channel-token", "weight_scale", (0.0, -1.0, torch.nan, torch.inf)),
    *((name, "weight_scale", (0xFF,)) for name in ("ct-mxfp4", "quark-mxfp6_e2m3", "hk-mxfp8")),
]


@pytest.mark.parametrize(
    ("device", "name", "parameter", "bad"),
    [
        (device, name, parameter, bad)
        for device in DEVICES
        for name, parameter, values in BROKEN
        for bad in values
        if not unserved(device, LAYERS[name])
    ],
    indirect=["device"],
)
def test_a_scale_that_is_none(device: str, name: str, parameter: str, bad: float) -> None:
    tensors, broken = named(LAYERS[name].tensors()), f"{ATTENTION}.k_proj.{parameter}"
    tensors[broken].view(-1)[-1] = bad
    found = why_refused(LINEAR.config_of(LAYERS[name].config), tensors)
    said = "code 255 (NaN)" if bad == 0xFF else str(bad)
    assert broken in found, "or is one of those that are named"
    assert f": {said} at" in found
    assert bad == 0xFF or "expected positive, finite numbers" in found


@online_methods
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_a_weight_that_is_not_finite(device: str, method: str, bad: float) -> None:
    """The message names the weight, which the checkpoint has, and not a scale of HK's."""
    tensors, name = bfloat16(), f"{ATTENTION}.k_proj.weight"
    tensors[name][3, 5] = bad
    found = why_refused(LINEAR.online(method), tensors)
    assert found == f"{name}: {bad} at [3, 5] is not valid: expected finite numbers"


# -- no checkpoint, or a whole tensor


@pytest.mark.parametrize("method", FORMATS_OF)
def test_a_merged_weight_that_is_quantised_while_loading(method: str) -> None:
    whole = torch.cat(list(bfloat16().values()))
    layer = LINEAR.loaded(LINEAR.online(method), {f"{ATTENTION}.qkv_proj.weight": whole})
    assert is_attached(layer)


def assert_finite(layer: Any) -> None:
    assert is_attached(layer)
    assert bool(LINEAR.forward(layer, x_of()).isfinite().all())


def test_dummy_values(any_checkpoint: Scheme) -> None:
    assert_finite(LINEAR.dummy(LINEAR.config_of(any_checkpoint.config)))


@online_methods
def test_dummy_values_that_are_quantised(device: str, method: str) -> None:
    assert_finite(LINEAR.dummy(LINEAR.online(method)))
    assert_finite(LINEAR.dummy(None))
