"""Layers whose weights a checkpoint holds rotated, for either engine.

HK rotates their inputs. Where HK does not take such a layer the engine stops, because nothing else
can serve it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.engine.linear.rotated import RotationError
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops.rotation import ROTATION_KEY
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.routing.routes import routes
from hk_backend.terms.weight_format import ROTATED, rotated_activations
from tests.integration.adapter import LINEAR, Environment
from tests.integration.shared.checkpoints import LAYERS, WIDTHS, K
from tests.integration.shared.linear.layers import check_shards, layer_of
from tests.integration.shared.linear.named_tensors import bfloat16
from tests.integration.shared.linear.rotated import (
    BLOCK,
    NAME,
    only_hk,
    refused,
    row_parallel,
    written,
)
from tests.ops.linear_cases import Layer
from tests.ops.linear_oracle import check_result

pytestmark = pytest.mark.usefixtures("fresh_linear_route")

NAMES = [name for name, scheme in LINEAR.CHECKPOINTS.items() if scheme.rotation]
TOKEN = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": True, "strategy": "token"}


def x_of(k: int = K) -> torch.Tensor:
    x = torch.randn(9, k, generator=torch.Generator().manual_seed(1))
    x[:, 5] *= 30  # one large feature, which a rotation spreads over all
    return x.bfloat16()


@pytest.mark.parametrize("name", NAMES)
def test_another_rotation_would_be_seen(environment: Environment, name: str) -> None:
    """The format's bound holds for the checkpoint's rotation, and for no other.

    With HK_CHECK the reference computes the same layer, and agrees.
    """
    environment(HK_CHECK="1")
    scheme = LAYERS[name]
    layer = layer_of(LINEAR, scheme)
    expected, out = scheme.layers(x_of(), scheme.tensors()), LINEAR.forward(layer, x_of())
    check_shards(expected, out)
    plain = ROTATED[scheme.activations]
    others: list[dict[str, Any]] = [{"rotation": 0, "activations": plain}]
    others += [{"rotation": each} for each in ROTATIONS if each != scheme.rotation]
    for other in others:
        for shard, part in zip(expected, out.split(WIDTHS, -1), strict=True):
            with pytest.raises(AssertionError):
                check_result(replace(shard, **other), part.contiguous())
    assert routes.counters("linear").checked_calls == 1
    assert routes.verdict("linear"), "they differ"
    routes.disable("linear", "the reference computes from here on")
    check_shards(expected, LINEAR.forward(layer, x_of()))


def test_inputs_that_come_rotated() -> None:
    """A rotation of o_proj's inputs may be folded into v_proj, and then HK does not rotate them.

    The other layers keep their rotations.
    """
    recipe, generator = RECIPES["mxfp4"], torch.Generator().manual_seed(0)
    config = recipe.quantization_config("mx", [], BLOCK, ["self_attn.o_proj"])
    codes, scales = recipe.quantize(torch.randn(WIDTHS[0], K, generator=generator))
    tensors = {"weight_packed": codes, "weight_scale": scales}
    for name, rotation in (("self_attn.o_proj", 0), ("mlp.down_proj", BLOCK)):
        found = row_parallel(LINEAR, config, 0, tensors, ranks=1, name=f"model.layers.0.{name}")
        activations = rotated_activations("mx", rotation)
        layer = Layer(x_of(), codes, "mxfp4", scales, activations, rotation=rotation)
        check_result(layer, found.quant_method.apply(found, x_of()))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "name", [*NAMES, "fp8-static", "fp8-block", "ct-channel-token", "ct-mxfp4"]
)
def test_columns_of_a_rank(name: str, number: int) -> None:
    """A rank rotates its own input features, in whole blocks. Other schemes are cut alike."""
    scheme, x = LAYERS[name], x_of(K // 2)
    whole = {parameter: values[0] for parameter, values in scheme.tensors().items()}
    layer = row_parallel(LINEAR, scheme.config, number, whole)
    mine = {}
    for parameter, value in whole.items():
        is_cut = value.ndim == 2 and value.shape[1] > 1
        mine[parameter] = [value.chunk(2, 1)[number].contiguous() if is_cut else value]
    [shard] = scheme.layers(x, mine)
    check_result(shard, layer.quant_method.apply(layer, x))


def test_an_adapter_around_a_layer() -> None:
    """An adapter gets the inputs before they are rotated, and its product is added to HK's."""
    scheme, generator = LAYERS[NAMES[0]], torch.Generator().manual_seed(2)
    whole = {parameter: values[0] for parameter, values in scheme.tensors().items()}
    layer = row_parallel(LINEAR, scheme.config, 0, whole, ranks=1)
    a = torch.randn(4, K, generator=generator).bfloat16()
    b = torch.randn(WIDTHS[0], 4, generator=generator).bfloat16()
    plain = layer.quant_method.apply(layer, x_of())
    added = LINEAR.adapted(layer, x_of(), a, b) - plain
    expected = x_of().double() @ a.double().T @ b.double().T
    # the adapter's middle and the sum are rounded to bfloat16
    assert (added.double() - expected).norm() < 3 * 2.0**-8 * (expected.norm() + plain.norm())
    assert expected.norm() > plain.norm() / 4, "it matters"


@pytest.mark.parametrize(
    ("format", "rotation", "dtype"),
    [
        ("mxfp4", None, torch.bfloat16),
        ("mxfp4", 0, torch.float16),
        ("mxfp4", 128, torch.float32),
        ("mxfp6_e2m3", 0, torch.float32),
        ("mxfp8", 0, torch.float16),
    ],
    ids=str,
)
def test_mx_while_loading(format: str, rotation: int | None, dtype: torch.dtype) -> None:
    """Layers quantised while loading are rotated as `hk-backend quantize` would rotate them.

    An option chooses another rotation, or none.
    """
    config = LINEAR.online(f"hk_{format.partition('_')[0]}")
    assert config.options.rotation == (None if format == "mxfp4" else 0)
    config.options.rotation = rotation
    tensors, x = {name: each.to(dtype) for name, each in bfloat16().items()}, x_of().to(dtype)
    layer = LINEAR.loaded(config, tensors, dtype=dtype)
    block = BLOCK if rotation is None else rotation
    method = Method("rotated", block) if block else Method("rtn")
    activations, shards = "mx_rotated" if block else "mx", []
    for weight in tensors.values():
        codes, scales = method.quantize(method.target(weight), RECIPES[format])
        shards.append(Layer(x, codes, format, scales, activations, rotation=block))
    out = LINEAR.forward(layer, x)
    check_shards(shards, out)
    for other in {*ROTATIONS} - {block}:
        turned = [replace(each, activations="mx_rotated", rotation=other) for each in shards]
        with pytest.raises(AssertionError):
            check_shards(turned, out)


# -- refused


def changed(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **of: Any) -> Any:
    """A configuration of rotated weights with some of its entries changed."""
    config = written(**of)
    group = config["config_groups"]["group_0"]
    group["weights"] |= weights
    group["input_activations"] = inputs or group["input_activations"]
    return config


@pytest.mark.parametrize(
    "config",
    [
        changed({ROTATION_KEY: BLOCK}, format="fp8", activations="token"),
        changed({}, inputs=TOKEN),
    ],
    ids=["a format that is not rotated", "activations of another format"],
)
def test_a_layer_that_hk_has_no_kernel_for(config: Any) -> None:
    assert re.match(only_hk(""), refused(LINEAR, config), re.DOTALL)


@pytest.mark.parametrize("k", [96, 160])
def test_a_rotation_that_crosses_a_shard(k: int) -> None:
    """A rotation's block must not cross the end of a shard, on one rank or on two."""
    why = rf"{k} input features are not a multiple of the rotation, {BLOCK}$"
    assert re.match(only_hk(why), refused(LINEAR, written(), k))
    with pytest.raises(RotationError) as error:
        row_parallel(LINEAR, written(), 0, {}, 2 * k)
    why = f"{k} input features on each of 2 ranks are not a multiple of the rotation, {BLOCK}$"
    assert re.match(only_hk(why, layer="model.o_proj"), str(error.value))


def test_shards_that_are_not_rotated_alike() -> None:
    """Shards with different rotations are an error: engines would use the first one's for all."""
    config = written()
    group = config["config_groups"]["group_0"]
    other = {**group, "weights": {**group["weights"], ROTATION_KEY: 32}}
    config["config_groups"] = {
        "group_0": {**group, "targets": ["re:.*[qk]_proj$"]},
        "group_1": {**other, "targets": ["re:.*v_proj$"]},
    }
    found = refused(LINEAR, config)
    parent = NAME.removesuffix(".qkv_proj")
    assert found.startswith(f"{NAME}: {ROTATION_KEY} of its shards: ")
    assert f"{parent}.k_proj 64, {parent}.v_proj 32: they run as one layer" in found
    del config["config_groups"]["group_1"]["weights"][ROTATION_KEY]
    assert f"{parent}.v_proj 0" in refused(LINEAR, config)


def test_experts() -> None:
    name = "model.layers.0.mlp.experts"
    with pytest.raises(RotationError) as error:
        LINEAR.config_of(written()).get_quant_method(LINEAR.experts(), name)
    why = r"(experts of a mixture|RoutedExperts): HK has no kernel for"
    assert re.match(only_hk(why, layer=rf"{name}\S*"), str(error.value))


@pytest.mark.parametrize("rotation", [0, 16, 48, "64", None])
def test_a_rotation_that_there_is_not(rotation: Any) -> None:
    assert refused(LINEAR, changed({ROTATION_KEY: rotation})) == (
        f"{ROTATION_KEY}: {rotation!r} is not valid: expected one of 32, 64, 128"
    )


def test_a_layer_that_is_ignored() -> None:
    """A layer that the checkpoint ignores is served unrotated, as in any other checkpoint."""
    config = LINEAR.config_of({**written(), "ignore": ["re:.*[qkv]_proj"]})
    layer = LINEAR.merged(config, torch.bfloat16, K, WIDTHS, prefix=NAME)
    LINEAR.load(layer, {"weight": list(bfloat16().values())})
    assert is_attached(layer)
    assert layer.hk_packed.rotation == 0
