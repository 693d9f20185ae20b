"""Layers of quantised checkpoints, one per scheme that SGLang knows: HK computes what the
checkpoint's own numbers say, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sglang.srt.layers.linear import QKVParallelLinear, ReplicatedLinear, RowParallelLinear

from hk_backend import reference
from hk_backend.engine.linear.route import is_attached
from hk_backend.routing.shadow_check import largest_error
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.hk_sglang.linear_layers import (
    config_of,
    installed,
    load,
    loaded,
    made,
    merged,
    online,
    put,
    rank,
)
from tests.integration.shared.linear.checkpoints import *  # noqa: F403
from tests.integration.shared.linear.checkpoints import assert_shards, x_of
from tests.integration.shared.linear.devices import in_schemes, on_gfx950
from tests.integration.shared.linear.named_tensors import bfloat16
from tests.integration.shared.linear_checkpoints import WIDTHS, K, Shards
from tests.ops.linear_oracle import check_result

ROUNDED = {
    "fp8-static": "tensor",
    "fp8-dynamic": "token",
    "fp8-block": "token_block",
    "compressed-tensors-channel-token": "token",
    "quark-fp8-channel-token": "token",
    "w8a8_fp8": "token",
    "quark-block": "token_block",
}
"""Checkpoints, and what shares a scale of the codes that SGLang's fused kernels make for them."""


@pytest.fixture(scope="module", autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
        yield


@pytest.mark.parametrize("rest", [(), (torch.float16,), (torch.zeros(9, K),)], ids=len)
@in_schemes(CHECKPOINTS, ROUNDED)
def test_codes_that_a_model_has_made(device: str, name: str, rest: tuple[Any, ...]) -> None:
    """By a fused kernel, as a tuple: with scales, and the rows' dtype or the rows themselves."""
    checkpoint = CHECKPOINTS[name]
    layer = load(
        merged(config_of(checkpoint.config), torch.bfloat16, K, WIDTHS), checkpoint.tensors()
    )
    codes, scales = reference.quantize_fp8(x_of(), ROUNDED[name])
    out, _ = layer((codes, 3 * scales, *rest))
    assert out.dtype == (torch.float16 if rest == (torch.float16,) else torch.bfloat16)
    x = reference.dequantize_rows(codes, 3 * scales)
    shards = checkpoint.layers(x, checkpoint.tensors())
    for part, shard in zip(out.split(WIDTHS, -1), shards, strict=True):
        shard.activations, shard.input_scale, shard.out_dtype = "none", None, out.dtype
        check_result(shard, part.contiguous())


@on_gfx950
def test_codes_for_a_layer_that_is_quantised_while_loading(device: str) -> None:
    layer = loaded(online("hk_fp8"), bfloat16())
    codes, scales = reference.quantize_fp8(x_of())
    assert torch.equal(layer((codes, scales))[0], layer(x_of())[0])


@pytest.mark.parametrize("name", ["fp8-block", "mxfp8"])
def test_the_other_name_of_a_scale(name: str) -> None:
    """Some of SGLang's models and loaders rename weight_scale_inv to weight_scale, or back."""
    checkpoint = CHECKPOINTS[name]
    shards = checkpoint.tensors()
    layer = merged(config_of(checkpoint.config), torch.bfloat16, K, WIDTHS)
    names = {"weight_scale": "weight_scale_inv", "weight_scale_inv": "weight_scale"}
    put(layer, {names.get(each, each): value for each, value in shards.items()})
    layer.quant_method.process_weights_after_loading(layer)
    out, _ = layer(x_of())
    assert_shards(out, checkpoint.expected(x_of(), shards), WIDTHS)


# -- other kinds of layers, and ranks


def of_one_shard(shards: Shards) -> Shards:
    """The first shard's tensors, as those of a layer that is not merged."""
    return {name: values[:1] for name, values in shards.items()}


@pytest.mark.parametrize("kind", [ReplicatedLinear, RowParallelLinear], ids=lambda k: k.__name__)
@in_schemes(CHECKPOINTS)
def test_a_layer_that_is_not_merged(device: str, name: str, kind: Any) -> None:
    checkpoint = CHECKPOINTS[name]
    shards = of_one_shard(checkpoint.tensors())
    config = config_of(checkpoint.config)
    layer = made(
        kind, torch.bfloat16, K, WIDTHS[0], bias=False, quant_config=config, prefix="model.o_proj"
    )
    for parameter, (value,) in shards.items():
        layer.get_parameter(parameter).weight_loader(layer.get_parameter(parameter), value)
    layer.quant_method.process_weights_after_loading(layer)
    out = layer.quant_method.apply(layer, x_of())
    assert_shards(out, checkpoint.expected(x_of(), shards), WIDTHS[:1])


@pytest.mark.parametrize("number", [0, 1])
@in_schemes(CHECKPOINTS)
def test_two_ranks(device: str, name: str, number: int) -> None:
    """Rows of q, k and v: heads of 128, so that blocks end with them."""
    checkpoint = CHECKPOINTS[name]
    shards = {each: [*values, values[2]] for each, values in checkpoint.tensors().items()}
    # q has the 256 rows of the first shard; k the others' 128 twice, v the third's twice
    order = {"q": [0], "k": [1, 2], "v": [2, 3]}
    config = config_of(checkpoint.config)
    with rank(number, 2, device):
        layer = made(
            QKVParallelLinear,
            torch.bfloat16,
            K,
            head_size=128,
            total_num_heads=2,
            total_num_kv_heads=2,
            bias=False,
            quant_config=config,
            prefix="model.qkv_proj",
        )
        per_shard = {"tensor": True}.get(scale_kind(layer), False)
        for parameter, values in shards.items():
            scalar = parameter == "input_scale" or (per_shard and parameter == checkpoint.scale)
            for shard, indices in order.items():
                parts = [values[index] for index in indices]
                whole = parts[0] if scalar else torch.cat(parts)
                held = layer.get_parameter(parameter)
                held.weight_loader(held, whole, shard)
        layer.quant_method.process_weights_after_loading(layer)
    expected = []
    for shard, indices in order.items():
        mine = indices[0] if shard == "q" else indices[number]
        scale = shards[checkpoint.scale][indices[0] if per_shard else mine]
        rows = slice(128 * number, 128 * number + 128) if shard == "q" else slice(None)
        if shard == "q" and not per_shard:
            scale = scale.chunk(2)[number]
        inputs = shards.get("input_scale")
        static = None if inputs is None else torch.stack([inputs[i] for i in (0, 1, 2)]).max()
        expected.append(
            reference.linear(
                x_of(),
                shards[checkpoint.weight][mine][rows],
                checkpoint.format,
                scale,
                activations=checkpoint.activations,
                input_scale=None if static is None else static.reshape(1),
                rotation=checkpoint.rotation,
            )
        )
    out = layer.quant_method.apply(layer, x_of())
    assert_shards(out, torch.cat(expected, -1), [128, 128, 128])


@pytest.mark.parametrize("number", [0, 1])
@in_schemes(CHECKPOINTS)
def test_columns_of_two_ranks(device: str, name: str, number: int) -> None:
    """A row-parallel layer: each rank has half of the input features."""
    checkpoint = CHECKPOINTS[name]
    shards = of_one_shard(checkpoint.tensors())
    config = config_of(checkpoint.config)
    with rank(number, 2, device):
        layer = made(
            RowParallelLinear,
            torch.bfloat16,
            K,
            WIDTHS[0],
            bias=False,
            quant_config=config,
            prefix="model.o_proj",
        )
        for parameter, (value,) in shards.items():
            layer.get_parameter(parameter).weight_loader(layer.get_parameter(parameter), value)
        layer.quant_method.process_weights_after_loading(layer)
    split = {checkpoint.weight}
    if scale_kind(layer) in ("block", "mx"):
        split.add(checkpoint.scale)
    mine = {
        each: [value.chunk(2, 1)[number].contiguous() if each in split else value]
        for each, (value,) in shards.items()
    }
    x = x_of(K // 2)
    out = layer.quant_method.apply(layer, x)
    assert_shards(out, checkpoint.expected(x, mine), WIDTHS[:1])


def scale_kind(layer: Any) -> str:
    found: str = layer.quant_method.scheme.scale_kind
    return found


# -- quantised while loading


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("method", ["hk_fp8", "hk_mxfp8", "hk_mxfp6", "hk_mxfp4"])
def test_online(method: str, dtype: torch.dtype) -> None:
    """Layer by layer: as soon as a layer's last tensor is there, its weight is released."""
    from sglang.srt.layers.quantization import get_quantization_config

    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(width, K, generator=generator).to(dtype) for width in WIDTHS]
    layer = merged(get_quantization_config(method)(), dtype, K, WIDTHS)
    assert layer.weight.numel() == 0, "the model is in memory before it is loaded"
    put(layer, {"weight": weights[:2]})
    assert not is_attached(layer)
    put(layer, {"weight": weights[2:]}, first=2)
    assert is_attached(layer)
    assert layer.weight.numel() == 0
    layer.quant_method.process_weights_after_loading(layer)
    out = layer.quant_method.apply(layer, x_of().to(dtype))
    truth = torch.cat([x_of().to(dtype).double() @ weight.double().T for weight in weights], -1)
    # of normally distributed numbers: the rounding of the format's 3, 3, 3 and 1 bits
    bound = {"hk_mxfp4": 0.2}.get(method, 0.06)
    assert largest_error(out, truth) < bound
