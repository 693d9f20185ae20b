"""Tensors that a checkpoint lacks, broken numbers, and no checkpoint at all: through the engine's
own loader."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.engine.linear.options import FORMATS_OF
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.weight_format import FORMATS
from tests.integration.adapter import LINEAR
from tests.integration.shared.linear.devices import DEVICES, in_schemes, on_devices, unserved
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.named_tensors import (
    ATTENTION,
    GATE_UP,
    MLP,
    QKV,
    bfloat16,
    named,
    without,
)
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, Checkpoint, K

pytestmark = pytest.mark.usefixtures("linear_route")

online_methods = pytest.mark.parametrize(
    ("device", "method"),
    [
        (device, method)
        for device in DEVICES
        for method, formats in FORMATS_OF.items()
        if not unserved(device, "mx" if FORMATS[formats[0]].is_mx else "channel")
    ],
    indirect=["device"],
)
"""Each device, with each `--quantization hk_...` that it serves."""


def refusal(
    engine: LinearEngine, config: Any, tensors: dict[str, torch.Tensor], **options: Any
) -> str:
    with pytest.raises(ValueError) as error:
        engine.loaded(config, tensors, **options)
    return str(error.value)


def x_of() -> torch.Tensor:
    return torch.randn(4, K, generator=torch.Generator().manual_seed(1)).bfloat16()


# -- missing


def test_a_weight_of_a_shard(engine: LinearEngine, any_checkpoint: Checkpoint) -> None:
    gone = f"{ATTENTION}.k_proj.{any_checkpoint.weight}"
    tensors = without(named(any_checkpoint.tensors()), gone)
    found = refusal(engine, engine.config_of(any_checkpoint.config), tensors)
    assert found == f"{gone}: not in the checkpoint"


@in_schemes(LINEAR.CHECKPOINTS)
def test_a_scale_of_a_shard(engine: LinearEngine, device: str, name: str) -> None:
    checkpoint = engine.CHECKPOINTS[name]
    gone = f"{ATTENTION}.k_proj.{checkpoint.scale}"
    tensors = without(named(checkpoint.tensors()), gone)
    found = refusal(engine, engine.config_of(checkpoint.config), tensors)
    assert found == f"{gone}: not in the checkpoint"


def test_a_model_that_renames_its_parts(engine: LinearEngine) -> None:
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    parent = "model.language_model.layers.0.self_attn"
    tensors = named(checkpoint.tensors(), parent)
    rest = without(tensors, *(f"{parent}.{name}.weight_scale" for name in QKV[1:]))
    prefix = "language_model.model.layers.0.self_attn"
    config = engine.config_of(checkpoint.config)
    found = refusal(engine, config, rest, prefix=f"{prefix}.qkv_proj")
    assert found == f"{prefix}.k_proj.weight_scale: not in the checkpoint"


@on_devices
@pytest.mark.parametrize("gone", [("q_proj",), ("v_proj",), ("k_proj", "v_proj"), QKV])
@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("fp8-dynamic", "weight_scale"),
        ("fp8-static", "weight_scale"),
        ("fp8-static", "input_scale"),
        ("quark-fp8-static", "input_scale"),
        ("modelopt-fp8", "input_scale"),
    ],
)
def test_scales_of_shards(
    engine: LinearEngine, device: str, name: str, parameter: str, gone: tuple[str, ...]
) -> None:
    checkpoint = CHECKPOINTS[name]
    names = [f"{ATTENTION}.{shard}.{parameter}" for shard in gone]
    tensors = without(named(checkpoint.tensors()), *names)
    found = refusal(engine, engine.config_of(checkpoint.config), tensors)
    assert found == f"{names[0]}: not in the checkpoint"


@pytest.mark.parametrize("parameter", ["weight_scale", "input_scale"])
def test_the_second_scale_of_two(engine: LinearEngine, parameter: str) -> None:
    """One scale for both shards is what a merged tensor has: these came in two."""
    checkpoint = CHECKPOINTS["fp8-static"]
    gone = f"{MLP}.up_proj.{parameter}"
    tensors = without(named(checkpoint.tensors(), MLP, GATE_UP), gone)
    config = engine.config_of(checkpoint.config)
    found = refusal(engine, config, tensors, prefix=f"{MLP}.gate_up_proj")
    assert found == f"{gone}: not in the checkpoint"


@on_devices
def test_a_merged_layer_with_one_scale(engine: LinearEngine, device: str) -> None:
    """Some checkpoints hold q, k and v as one tensor, with one scale."""
    checkpoint = CHECKPOINTS["fp8-dynamic"]
    weights, scale = checkpoint.tensors()["weight"], torch.tensor(0.01)
    merged = {
        f"{ATTENTION}.qkv_proj.weight": torch.cat(weights),
        f"{ATTENTION}.qkv_proj.weight_scale": scale,
    }
    layer = engine.loaded(engine.config_of(checkpoint.config), merged)
    expected = checkpoint.expected(x_of(), {"weight": weights, "weight_scale": [scale] * 3})
    assert largest_error(engine.forward(layer, x_of()), expected) <= tolerance(torch.bfloat16)


# -- broken


@pytest.mark.parametrize("bad", [0.0, -1.0, torch.nan, torch.inf], ids=str)
@in_schemes(CHECKPOINTS, ["fp8-static", "fp8-block", "compressed-tensors-channel-token"])
def test_a_scale_that_is_none(engine: LinearEngine, device: str, name: str, bad: float) -> None:
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.k_proj.{checkpoint.scale}"
    tensors[broken].view(-1)[-1] = bad
    found = refusal(engine, engine.config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: {bad} at")
    assert "expected positive, finite numbers" in found


@on_devices
@pytest.mark.parametrize("bad", [0.0, torch.nan], ids=str)
def test_an_input_scale_that_is_none(engine: LinearEngine, device: str, bad: float) -> None:
    checkpoint = CHECKPOINTS["fp8-static"]
    tensors = named(checkpoint.tensors())
    tensors[f"{ATTENTION}.k_proj.input_scale"].fill_(bad)
    found = refusal(engine, engine.config_of(checkpoint.config), tensors)
    assert f"{ATTENTION}.k_proj.input_scale" in found


@pytest.mark.parametrize("name", ["compressed-tensors-mxfp4", "quark-mxfp6-e2m3", "hk_mxfp8"])
def test_an_mx_scale_that_is_nan(engine: LinearEngine, name: str) -> None:
    checkpoint = CHECKPOINTS[name]
    tensors = named(checkpoint.tensors())
    broken = f"{ATTENTION}.v_proj.weight_scale"
    tensors[broken][5, 3] = 0xFF
    found = refusal(engine, engine.config_of(checkpoint.config), tensors)
    assert found.startswith(f"{broken}: code 255 (NaN) at [5, 3]")


# -- quantised while loading


@pytest.mark.parametrize("gone", [("q_proj",), ("k_proj", "v_proj"), QKV])
@online_methods
def test_a_weight_that_is_quantised_while_loading(
    engine: LinearEngine, device: str, method: str, gone: tuple[str, ...]
) -> None:
    names = [f"{ATTENTION}.{name}.weight" for name in gone]
    found = refusal(engine, engine.online(method), without(bfloat16(), *names))
    assert found == f"{names[0]}: not in the checkpoint"


@pytest.mark.parametrize("method", FORMATS_OF)
def test_a_merged_weight_that_is_quantised_while_loading(engine: LinearEngine, method: str) -> None:
    whole = torch.cat(list(bfloat16().values()))
    layer = engine.loaded(engine.online(method), {f"{ATTENTION}.qkv_proj.weight": whole})
    assert is_attached(layer)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
@online_methods
def test_a_weight_that_is_not_finite(
    engine: LinearEngine, device: str, method: str, bad: float
) -> None:
    """The message is about the weight, which the checkpoint has, not about a scale."""
    tensors, name = bfloat16(), f"{ATTENTION}.k_proj.weight"
    tensors[name][3, 5] = bad
    found = refusal(engine, engine.online(method), tensors)
    assert found == f"{name}: {bad} at [3, 5] is not valid: expected finite numbers"


# -- no checkpoint


def assert_finite(engine: LinearEngine, layer: Any) -> None:
    assert is_attached(layer)
    assert bool(engine.forward(layer, x_of()).isfinite().all())


def test_dummy_values(engine: LinearEngine, any_checkpoint: Checkpoint) -> None:
    assert_finite(engine, engine.dummy(engine.config_of(any_checkpoint.config)))


def test_dummy_values_that_are_not_quantised(engine: LinearEngine) -> None:
    assert_finite(engine, engine.dummy(None))


@online_methods
def test_dummy_values_that_are_quantised(engine: LinearEngine, device: str, method: str) -> None:
    assert_finite(engine, engine.dummy(engine.online(method)))
