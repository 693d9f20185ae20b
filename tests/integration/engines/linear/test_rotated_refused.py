"""Layers of either engine whose weights a checkpoint holds rotated, where HK does not take them:
the engine stops, as nothing else can serve them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from hk_backend.engine.linear.rotated import RotationError
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.routing.routes import routes
from tests.integration.shared.linear.devices import GFX950
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.rotated import (
    BLOCK,
    NAME,
    only_hk,
    refused,
    row_parallel,
    written,
)
from tests.integration.shared.linear_checkpoints import WIDTHS, K

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


def test_a_route_that_is_off(engine: LinearEngine) -> None:
    routes.disable("linear", "because")
    assert re.match(only_hk("because"), refused(engine, written()), re.DOTALL)


@pytest.mark.parametrize("device", [GFX950], indirect=True)
@pytest.mark.parametrize("format", ["mxfp4", "mxfp8"])
def test_another_device(engine: LinearEngine, device: str, format: str) -> None:
    config = written(format=format)
    why = "gfx950 has no kernels for mxfp"
    assert re.match(only_hk(why), refused(engine, config), re.DOTALL)


@pytest.mark.parametrize("k", [96, 160])
def test_a_rotation_that_crosses_a_shard(engine: LinearEngine, k: int) -> None:
    """Alone, and where two ranks have a half each."""
    why = rf"{k} input features are not a multiple of the rotation, {BLOCK}$"
    assert re.match(only_hk(why), refused(engine, written(), k))
    with pytest.raises(RotationError) as error:
        row_parallel(engine, written(), 0, {}, 2 * k)
    why = f"{k} input features on each of 2 ranks are not a multiple of the rotation, {BLOCK}$"
    assert re.match(only_hk(why, layer="model.o_proj"), str(error.value))


def test_a_format_that_is_not_rotated(engine: LinearEngine) -> None:
    config = written(format="fp8", activations="token")
    config["config_groups"]["group_0"]["weights"][ROTATION_KEY] = BLOCK
    assert re.match(only_hk(""), refused(engine, config), re.DOTALL)


def test_activations_of_another_format(engine: LinearEngine) -> None:
    config = written()
    config["config_groups"]["group_0"]["input_activations"] = {
        "num_bits": 8,
        "type": "float",
        "symmetric": True,
        "dynamic": True,
        "strategy": "token",
    }
    assert re.match(only_hk(""), refused(engine, config), re.DOTALL)


def test_shards_that_are_not_rotated_alike(engine: LinearEngine) -> None:
    """The engines would take what the first of them says for all."""
    config = written()
    group = config["config_groups"]["group_0"]
    other = {**group, "weights": {**group["weights"], ROTATION_KEY: 32}}
    config["config_groups"] = {
        "group_0": {**group, "targets": ["re:.*[qk]_proj$"]},
        "group_1": {**other, "targets": ["re:.*v_proj$"]},
    }
    found = refused(engine, config)
    parent = NAME.removesuffix(".qkv_proj")
    assert found.startswith(f"{NAME}: {ROTATION_KEY} of its shards: ")
    assert f"{parent}.k_proj 64, {parent}.v_proj 32: they run as one layer" in found
    del other["weights"][ROTATION_KEY]
    config["config_groups"]["group_1"]["weights"] = other["weights"]
    assert f"{parent}.v_proj 0" in refused(engine, config)


def test_experts(engine: LinearEngine) -> None:
    name = "model.layers.0.mlp.experts"
    with pytest.raises(RotationError) as error:
        engine.config_of(written()).get_quant_method(engine.experts(), name)
    why = r"(experts of a mixture|RoutedExperts): HK has no kernel for"
    assert re.match(only_hk(why, layer=rf"{name}\S*"), str(error.value))


@pytest.mark.parametrize("rotation", [0, 16, 48, "64", None])
def test_a_rotation_that_there_is_not(engine: LinearEngine, rotation: Any) -> None:
    config = written()
    config["config_groups"]["group_0"]["weights"][ROTATION_KEY] = rotation
    assert refused(engine, config) == (
        f"{ROTATION_KEY}: {rotation!r} is not valid: expected one of 32, 64, 128"
    )


def test_a_layer_that_is_ignored(engine: LinearEngine) -> None:
    """It is as it would be in any checkpoint."""
    config = engine.config_of({**written(), "ignore": ["re:.*[qkv]_proj"]})
    layer = engine.merged(config, torch.bfloat16, K, WIDTHS, prefix=NAME)
    weights = [torch.randn(n, K).bfloat16() for n in WIDTHS]
    engine.load(layer, {"weight": weights})
    assert is_attached(layer)
    assert layer.hk_packed.rotation == 0
