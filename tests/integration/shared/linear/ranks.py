"""A rank's part of layers that eight ranks share: rows of q, k and v, with a head of keys for each
rank or one for four, and columns that are no whole number of a kernel's steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.engine.linear.route import is_attached
from tests.integration.shared.linear.devices import DEVICES, in_schemes
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear_checkpoints import CHECKPOINTS, Checkpoint, Shards
from tests.ops.linear_cases import Layer
from tests.ops.linear_oracle import check_result

RANKS = 8
COLUMNS = 448
"""Of a rank's input features: of 3584 the eighth part, 7 halves of a kernel's step."""
HEAD, HEADS, KV_HEADS = 16, 16, (8, 2)
"""Channels of a head, heads of queries, and heads of keys: one on each rank, or shared by four."""
N = 72
SCHEMES = (
    "fp8-static",
    "fp8-dynamic",
    "compressed-tensors-channel-token",
    "compressed-tensors-weight-only-channel",
    "modelopt-fp8",
    "quark-fp8-channel-token",
    "hk_fp8",
)
on_ranks = pytest.mark.parametrize("number", [0, 3, RANKS - 1])


def codes(n: int, k: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(n, k, generator=generator) * 60).to(torch.float8_e4m3fn)


def tensors_of(checkpoint: Checkpoint, widths: list[int], k: int) -> Shards:
    """What the checkpoint holds of a layer; scales in the shapes that its scheme gives them."""
    like = checkpoint.tensors()
    found: Shards = {name: [] for name in like}
    for seed, n in enumerate(widths):
        found["weight"].append(codes(n, k, seed))
        scale = like["weight_scale"][seed]
        if scale.numel() > 1:
            rows = torch.linspace(0.5, 2.0, n) * 4.0**-seed / 60
            scale = rows.reshape(n, *scale.shape[1:])
        found["weight_scale"].append(scale)
        if "input_scale" in like:
            found["input_scale"].append(like["input_scale"][seed])
    return found


def x_of(k: int) -> torch.Tensor:
    return torch.randn(7, k, generator=torch.Generator().manual_seed(1)).bfloat16()


def check(layer: Any, checkpoint: Checkpoint, shards: Shards, k: int) -> None:
    """The layer of this rank computes its `shards`."""
    layer.quant_method.process_weights_after_loading(layer)
    assert is_attached(layer)
    out = layer.quant_method.apply(layer, x_of(k))
    widths = [len(weight) for weight in shards["weight"]]
    for part, shard in zip(out.split(widths, -1), checkpoint.layers(x_of(k), shards), strict=True):
        check_result(shard, part.contiguous())


@on_ranks
@pytest.mark.parametrize("kv_heads", KV_HEADS)
@in_schemes(CHECKPOINTS, SCHEMES)
def test_heads_of_eight_ranks(
    engine: LinearEngine, device: str, name: str, kv_heads: int, number: int
) -> None:
    checkpoint = CHECKPOINTS[name]
    heads = {"q": HEADS, "k": kv_heads, "v": kv_heads}
    whole = tensors_of(checkpoint, [count * HEAD for count in heads.values()], COLUMNS)
    with engine.on_rank(number, RANKS, device) as make:
        layer = make(
            "QKVParallelLinear",
            COLUMNS,
            HEAD,
            HEADS,
            kv_heads,
            quant_config=engine.config_of(checkpoint.config),
            prefix="model.qkv_proj",
        )
        for parameter, values in whole.items():
            held = layer.get_parameter(parameter)
            for shard, value in zip(heads, values, strict=True):
                held.weight_loader(held, value, shard)
    mine: Shards = {parameter: [] for parameter in whole}
    for index, count in enumerate(heads.values()):
        each = max(count // RANKS, 1)
        first = number * count // RANKS // each * each * HEAD
        for parameter, values in whole.items():
            value = values[index]
            is_whole = value.numel() == 1
            mine[parameter].append(value if is_whole else value[first : first + each * HEAD])
    check(layer, checkpoint, mine, COLUMNS)


@on_ranks
@in_schemes(CHECKPOINTS, SCHEMES)
def test_columns_of_eight_ranks(engine: LinearEngine, device: str, name: str, number: int) -> None:
    checkpoint = CHECKPOINTS[name]
    whole = tensors_of(checkpoint, [N], RANKS * COLUMNS)
    with engine.on_rank(number, RANKS, device) as make:
        layer = make(
            "RowParallelLinear",
            RANKS * COLUMNS,
            N,
            quant_config=engine.config_of(checkpoint.config),
            prefix="model.o_proj",
        )
        for parameter, (value,) in whole.items():
            held = layer.get_parameter(parameter)
            held.weight_loader(held, value)
    mine = {**whole, "weight": [whole["weight"][0].chunk(RANKS, 1)[number].contiguous()]}
    check(layer, checkpoint, mine, COLUMNS)


@on_ranks
@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_columns_that_are_not_quantised(engine: LinearEngine, device: str, number: int) -> None:
    whole = torch.randn(N, RANKS * COLUMNS, generator=torch.Generator().manual_seed(2)).bfloat16()
    with engine.on_rank(number, RANKS, device) as make:
        layer = make("RowParallelLinear", RANKS * COLUMNS, N, prefix="model.o_proj")
        layer.weight.weight_loader(layer.weight, whole)
    layer.quant_method.process_weights_after_loading(layer)
    assert is_attached(layer)
    mine = whole.chunk(RANKS, 1)[number].contiguous()
    shard = Layer(x_of(COLUMNS), mine, "bf16", None)
    check_result(shard, layer.quant_method.apply(layer, x_of(COLUMNS)))


__all__ = [name for name in globals() if name.startswith("test_")]
