"""Layers of either engine whose weights a checkpoint holds rotated: HK rotates their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.source import PROJECTIONS
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.reference.rotation import rotated as turned
from hk_backend.routing.routes import routes
from hk_backend.terms.weight_format import FORMATS, rotated_activations
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.named_tensors import bfloat16
from tests.integration.shared.linear.rotated import BLOCK, NAME, row_parallel, written
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, WIDTHS, Checkpoint, K
from tests.integration.shared.quantization_configs import hk
from tests.ops.linear_cases import Layer
from tests.ops.linear_oracle import check_result

pytestmark = pytest.mark.usefixtures("fresh_linear_route")

NAMES = [name for name, checkpoint in CHECKPOINTS.items() if checkpoint.rotation]


def x_of(k: int = K) -> torch.Tensor:
    x = torch.randn(9, k, generator=torch.Generator().manual_seed(1))
    x[:, 5] *= 30  # rotated, it is everywhere
    return x.bfloat16()


@pytest.mark.parametrize("name", NAMES)
def test_another_rotation_would_be_seen(engine: LinearEngine, name: str) -> None:
    """The bound of the format holds for the checkpoint's rotation, and for no other, nor none."""
    checkpoint = CHECKPOINTS[name]
    config = engine.config_of(checkpoint.config)
    shards = checkpoint.tensors()
    layer = engine.load(engine.merged(config, torch.bfloat16, K, WIDTHS), shards)
    outs = engine.forward(layer, x_of()).split(WIDTHS, -1)
    for out, shard in zip(outs, checkpoint.layers(x_of(), shards), strict=True):
        check_result(shard, out.contiguous())
        plain = {"mx_rotated": "mx", "rotated": "none"}[checkpoint.activations]
        others = [replace(shard, rotation=0, activations=plain)]
        others += [replace(shard, rotation=r) for r in ROTATIONS if r != checkpoint.rotation]
        for other in others:
            with pytest.raises(AssertionError):
                check_result(other, out.contiguous())


@pytest.mark.parametrize("format", [name for name in RECIPES if RECIPES[name].can_rotate])
@pytest.mark.parametrize("activations", ["mx", "none"])
def test_what_quantize_writes_rotated(engine: LinearEngine, activations: str, format: str) -> None:
    """The layer is that of the weight as it was, but for rounding."""
    recipe, generator = RECIPES[format], torch.Generator().manual_seed(0)
    weights = [torch.randn(n, K, generator=generator) for n in WIDTHS]
    parts = [recipe.quantize(turned(weight, BLOCK).float()) for weight in weights]
    config = engine.config_of(written(activations, format=format))
    layer = engine.merged(config, torch.bfloat16, K, WIDTHS)
    names = [each.name for each in recipe.stored(WIDTHS[0], K)]
    engine.load(layer, dict(zip(names, map(list, zip(*parts, strict=True)), strict=True)))
    exact = x_of().double() @ torch.cat(weights).double().T
    error = (engine.forward(layer, x_of()).double() - exact).norm() / exact.norm()
    # of two independent rounding errors of at most half a step of an element
    assert error < 2**0.5 * 2.0 ** -(FORMATS[recipe.format].mantissa_bits + 1)


def test_inputs_that_come_rotated(engine: LinearEngine) -> None:
    """Folded into v_proj, o_proj's rotation is nobody's; the other layers keep theirs."""
    recipe, generator = RECIPES["mxfp4"], torch.Generator().manual_seed(0)
    config = recipe.quantization_config("mx", [], BLOCK, ["self_attn.o_proj"])
    codes, scales = recipe.quantize(torch.randn(WIDTHS[0], K, generator=generator))
    tensors = {"weight_packed": codes, "weight_scale": scales}
    for name, rotation in (("self_attn.o_proj", 0), ("mlp.down_proj", BLOCK)):
        found = row_parallel(engine, config, 0, tensors, ranks=1, name=f"model.layers.0.{name}")
        activations = rotated_activations("mx", rotation)
        layer = Layer(x_of(), codes, "mxfp4", scales, activations, rotation=rotation)
        check_result(layer, found.quant_method.apply(found, x_of()))


@pytest.mark.parametrize(("folded", "rotation"), [(PROJECTIONS[:3], 0), (PROJECTIONS[3:], BLOCK)])
def test_merged_layers_whose_inputs_come_rotated(
    engine: LinearEngine, folded: tuple[str, ...], rotation: int
) -> None:
    config = engine.config_of(RECIPES["mxfp4"].quantization_config("mx", [], BLOCK, folded))
    layer = engine.merged(config, torch.bfloat16, K, WIDTHS, prefix=NAME)
    parts = [RECIPES["mxfp4"].quantize(torch.ones(n, K)) for n in WIDTHS]
    codes, scales = (list(each) for each in zip(*parts, strict=True))
    engine.load(layer, {"weight_packed": codes, "weight_scale": scales})
    assert layer.hk_packed.rotation == rotation


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_columns_of_a_rank(engine: LinearEngine, name: str, number: int) -> None:
    """A rank rotates its own input features: whole blocks of them."""
    checkpoint = CHECKPOINTS[name]
    whole = {parameter: values[0] for parameter, values in checkpoint.tensors().items()}
    layer = row_parallel(engine, checkpoint.config, number, whole)
    mine = {
        parameter: [value.chunk(2, 1)[number].contiguous()] for parameter, value in whole.items()
    }
    x = x_of(K // 2)
    [shard] = checkpoint.layers(x, mine)
    check_result(shard, layer.quant_method.apply(layer, x))


def test_an_adapter_around_a_layer(engine: LinearEngine) -> None:
    """It gets the inputs as they came, and adds to what HK makes of them."""
    checkpoint = CHECKPOINTS[NAMES[0]]
    whole = {parameter: values[0] for parameter, values in checkpoint.tensors().items()}
    layer = row_parallel(engine, checkpoint.config, 0, whole, ranks=1)
    generator = torch.Generator().manual_seed(2)
    a, b = torch.randn(4, K, generator=generator), torch.randn(WIDTHS[0], 4, generator=generator)
    a, b = a.bfloat16(), b.bfloat16()
    plain = layer.quant_method.apply(layer, x_of())
    added = engine.adapted(layer, x_of(), a, b) - plain
    expected = x_of().double() @ a.double().T @ b.double().T
    # the adapter's middle and the sum are rounded to bfloat16
    assert (added.double() - expected).norm() < 3 * 2.0**-8 * (expected.norm() + plain.norm())
    assert expected.norm() > plain.norm() / 4, "it matters"


def test_the_shadow_check_rotates(
    engine: LinearEngine, environment: Callable[..., None], any_rotated: Checkpoint
) -> None:
    """With HK_CHECK the reference computes the same layer; without its rotation, another."""
    environment(HK_CHECK="1")
    config = engine.config_of(any_rotated.config)
    layer = engine.load(engine.merged(config, torch.bfloat16, K, WIDTHS), any_rotated.tensors())
    engine.forward(layer, x_of())
    assert routes.counters("linear").checked_calls == 1
    assert routes.verdict("linear"), "they differ"
    routes.disable("linear", "the reference computes from here on")
    for part, shard in zip(
        engine.forward(layer, x_of()).split(WIDTHS, -1),
        any_rotated.layers(x_of(), any_rotated.tensors()),
        strict=True,
    ):
        check_result(shard, part.contiguous())


@pytest.fixture(params=NAMES)
def any_rotated(request: pytest.FixtureRequest) -> Checkpoint:
    return CHECKPOINTS[request.param]


@pytest.mark.parametrize("rotation", [None, 0, 128])
def test_rotated_while_loading(engine: LinearEngine, rotation: int | None) -> None:
    """As `hk-backend quantize` does it; by default, and as an option says."""
    config = engine.online("hk_mxfp4")
    assert config.options.rotation is None
    config.options.rotation = rotation
    tensors = bfloat16()
    layer = engine.loaded(config, tensors)
    block = BLOCK if rotation is None else rotation
    method = Method("rotated", block) if block else Method("rtn")
    out = engine.forward(layer, x_of())
    for part, weight in zip(out.split(WIDTHS, -1), tensors.values(), strict=True):
        codes, scales = method.quantize(method.target(weight), RECIPES["mxfp4"])
        activations = "mx_rotated" if block else "mx"
        shard = Layer(x_of(), codes, "mxfp4", scales, activations, rotation=block)
        check_result(shard, part.contiguous())
        for other in ROTATIONS:
            if other != block:
                with pytest.raises(AssertionError):
                    check_result(
                        replace(shard, activations="mx_rotated", rotation=other), part.contiguous()
                    )


def test_a_rotation_that_does_not_fit_a_layer(engine: LinearEngine) -> None:
    """While loading: what is asked for, or an error; without an option, what fits."""
    why = "192 input features are not a multiple of the rotation, 128"
    config = engine.online("hk_mxfp4")
    engine.merged(config, torch.bfloat16, 96, WIDTHS)
    config.options.rotation = 128
    checkpoint = engine.config_of(hk("hk_mxfp4", rotation=128))
    for each in (config, checkpoint):
        with pytest.raises(ValueError, match=f"model.qkv_proj: --quantization hk_mxfp4: {why}"):
            engine.merged(each, torch.bfloat16, 192, WIDTHS)
