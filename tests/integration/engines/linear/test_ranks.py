"""A rank's part of layers that eight ranks share: rows of q, k and v, with a head of keys for each
rank or one for four, and columns that are no whole number of a kernel's steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.engine.linear.route import is_attached
from hk_backend.reference import quantize_mx
from hk_backend.terms.weight_format import FP8_BLOCK
from tests.integration.shared.linear.devices import in_schemes
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, Checkpoint, Shards
from tests.ops.linear_oracle import check_result

pytestmark = pytest.mark.usefixtures("linear_route")

RANKS = 8
HEADS, KV_HEADS = 16, (8, 2)
"""Heads of queries, and heads of keys: one on each rank, or shared by four."""
N = 72
SCHEMES = {
    "not quantised": Checkpoint({}, lambda: {"weight": [torch.ones(1)] * 3}, "bf16", "none"),
    **{
        name: CHECKPOINTS[name]
        for name in (
            "fp8-static",
            "fp8-dynamic",
            "fp8-block",
            "compressed-tensors-channel-token",
            "compressed-tensors-weight-only-channel",
            "compressed-tensors-block",
            "compressed-tensors-mxfp4",
            "compressed-tensors-mxfp8",
            "modelopt-fp8",
            "quark-fp8-channel-token",
            "quark-mxfp4",
            "quark-mxfp6-e2m3",
            "hk_fp8",
            "hk_mxfp8",
        )
    },
}
"""Of each way to store scales one at least: a rank's tensors are cut by it."""
on_ranks = pytest.mark.parametrize("number", [0, 3, RANKS - 1])


def sizes(checkpoint: Checkpoint) -> tuple[int, int]:
    """Channels of a head, and a rank's input features: of 3584 the eighth part, 7 halves of a
    kernel's step; whole blocks where scales are of blocks."""
    return (FP8_BLOCK, 2 * FP8_BLOCK) if checkpoint.scale_kind == "block" else (16, 448)


def tensors_of(checkpoint: Checkpoint, widths: list[int], k: int) -> Shards:
    """What the checkpoint holds of a layer; scales in the shapes that its scheme gives them."""
    like = checkpoint.tensors()
    found: Shards = {name: [] for name in like}
    for seed, n in enumerate(widths):
        values = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 4.0**-seed
        if checkpoint.format == "bf16":
            codes, scale = values.bfloat16(), None
        elif checkpoint.scale_kind == "mx":
            codes, scale = quantize_mx(values, checkpoint.format)
        else:
            codes = (values * 4.0**seed * 60).to(torch.float8_e4m3fn)
            scale = like[checkpoint.scale][seed]
            if checkpoint.scale_kind == "block":
                scale = torch.linspace(0.5, 2.0, n * k // FP8_BLOCK**2) * 4.0**-seed / 60
                scale = scale.reshape(n // FP8_BLOCK, k // FP8_BLOCK)
            elif checkpoint.scale_kind == "channel":
                rows = torch.linspace(0.5, 2.0, n) * 4.0**-seed / 60
                scale = rows.reshape(n, *scale.shape[1:])
        found[checkpoint.weight].append(codes)
        if scale is not None:
            found[checkpoint.scale].append(scale)
        if "input_scale" in like:
            found["input_scale"].append(like["input_scale"][seed])
    return found


def layer_of(
    engine: LinearEngine,
    checkpoint: Checkpoint,
    whole: dict[str, dict[Any, torch.Tensor]],
    make: Any,
    kind: str,
    *arguments: int,
) -> Any:
    """The layer, loaded with the tensors of `whole` by parameter and shard."""
    config = engine.config_of(checkpoint.config) if checkpoint.config else None
    layer = make(kind, *arguments, quant_config=config, prefix="model.some_proj")
    for name, by_shard in whole.items():
        parameter = layer.get_parameter(name)
        for shard, value in by_shard.items():
            parameter.weight_loader(parameter, value, *([shard] if shard else []))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def check(layer: Any, checkpoint: Checkpoint, shards: Shards, k: int) -> None:
    """The layer of this rank computes its `shards`."""
    assert is_attached(layer)
    x = torch.randn(7, k, generator=torch.Generator().manual_seed(1)).bfloat16()
    out = layer.quant_method.apply(layer, x)
    widths = [len(weight) for weight in shards[checkpoint.weight]]
    for part, shard in zip(out.split(widths, -1), checkpoint.layers(x, shards), strict=True):
        check_result(shard, part.contiguous())


@on_ranks
@pytest.mark.parametrize("kv_heads", KV_HEADS)
@in_schemes(SCHEMES)
def test_heads_of_eight_ranks(
    engine: LinearEngine, device: str, name: str, kv_heads: int, number: int
) -> None:
    checkpoint = SCHEMES[name]
    head, columns = sizes(checkpoint)
    heads = {"q": HEADS, "k": kv_heads, "v": kv_heads}
    whole = tensors_of(checkpoint, [count * head for count in heads.values()], columns)
    by_shard = {each: dict(zip(heads, values, strict=True)) for each, values in whole.items()}
    with engine.on_rank(number, RANKS, device) as make:
        arguments = columns, head, HEADS, kv_heads
        layer = layer_of(engine, checkpoint, by_shard, make, "QKVParallelLinear", *arguments)
    mine: Shards = {parameter: [] for parameter in whole}
    for index, count in enumerate(heads.values()):
        each = max(count // RANKS, 1)
        first = number * count // RANKS // each * each
        for parameter, values in whole.items():
            value = values[index]
            of_a_head = len(value) // count if value.numel() > 1 else 0
            rows = slice(first * of_a_head, (first + each) * of_a_head)
            mine[parameter].append(value[rows] if of_a_head else value)
    check(layer, checkpoint, mine, columns)


@on_ranks
@in_schemes(SCHEMES)
def test_columns_of_eight_ranks(engine: LinearEngine, device: str, name: str, number: int) -> None:
    checkpoint = SCHEMES[name]
    _, columns = sizes(checkpoint)
    whole = tensors_of(checkpoint, [N if columns == 448 else FP8_BLOCK], RANKS * columns)
    by_shard = {parameter: {"": value} for parameter, (value,) in whole.items()}
    with engine.on_rank(number, RANKS, device) as make:
        arguments = RANKS * columns, len(whole[checkpoint.weight][0])
        layer = layer_of(engine, checkpoint, by_shard, make, "RowParallelLinear", *arguments)
    cut = {
        checkpoint.weight,
        *([checkpoint.scale] if checkpoint.scale_kind in ("block", "mx") else ()),
    }
    mine = {
        parameter: [value.chunk(RANKS, 1)[number].contiguous() if parameter in cut else value]
        for parameter, (value,) in whole.items()
    }
    check(layer, checkpoint, mine, columns)
