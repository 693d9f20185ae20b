"""Tensors that a checkpoint lacks, numbers that are none in one that is quantised while loading,
and no checkpoint at all: through the loaders of either engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.engine.linear.options import FORMATS_OF
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.weight_format import FORMATS
from tests.integration.shared.linear.devices import DEVICES, on_devices, unserved
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


@online_methods
def test_dummy_values_that_are_quantised(engine: LinearEngine, device: str, method: str) -> None:
    assert_finite(engine, engine.dummy(engine.online(method)))


__all__ = [name for name in globals() if name.startswith("test_")]
