"""A rank's part of layers that eight ranks share: rows of q, k and v, with a head of keys for each
rank or one for four, and columns that are no whole number of a kernel's steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.engine.linear.route import is_attached
from hk_backend.terms.weight_format import FP8_BLOCK
from tests.integration.shared.checkpoints import LAYERS, Scheme, Shards
from tests.integration.shared.checkpoints.scheme import Layer
from tests.integration.shared.linear.devices import in_schemes
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.layers import check_shards
from tests.ops import linear_cases

pytestmark = pytest.mark.usefixtures("linear_route")

RANKS = 8
HEADS, KV_HEADS = 16, (8, 2)
"""Heads of queries, and heads of keys: one on each rank, or shared by four."""
N = 72
PLAIN = Scheme("not quantised", lambda w: Layer({"weight": w.bfloat16()}, w), {}, format="bf16")
NAMES = "fp8-static", "fp8-block", "ct-channel-token", "ct-mxfp4", "quark-mxfp6_e2m3", "hk-mxfp8"
SCHEMES = {PLAIN.name: PLAIN} | {name: LAYERS[name] for name in NAMES}
"""Of each way to store scales one at least: a rank's tensors are cut by it."""
on_ranks = pytest.mark.parametrize("number", [0, 5])


def sizes(scheme: Scheme) -> tuple[int, int]:
    """Channels of a head, and a rank's input features: of 3584 the eighth part, 7 halves of a
    kernel's step; whole blocks where scales are of blocks."""
    return (FP8_BLOCK, 2 * FP8_BLOCK) if scheme.scale_kind == "block" else (16, 448)


def tensors_of(scheme: Scheme, widths: list[int], k: int) -> Shards:
    """What the checkpoint holds of a layer, in values of different sizes."""
    found: Shards = {}
    for seed, n in enumerate(widths):
        values = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 4.0**-seed
        values *= torch.linspace(0.5, 2.0, n)[:, None] * torch.linspace(0.5, 2.0, k)
        for name, tensor in scheme.layer(values).tensors.items():
            found.setdefault(name, []).append(tensor)
    if scheme.static:
        found["input_scale"] = [torch.tensor(0.01 + 0.005 * seed) for seed in range(len(widths))]
    return found


def layer_of(
    engine: LinearEngine,
    scheme: Scheme,
    whole: dict[str, dict[Any, torch.Tensor]],
    make: Any,
    kind: str,
    *arguments: int,
) -> Any:
    """The layer, loaded with the tensors of `whole` by parameter and shard."""
    config = engine.config_of(scheme.config) if scheme.config else None
    layer = make(kind, *arguments, quant_config=config, prefix="model.some_proj")
    for name, by_shard in whole.items():
        parameter = layer.get_parameter(name)
        for shard, value in by_shard.items():
            parameter.weight_loader(parameter, value, *([shard] if shard else []))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def check(layer: Any, scheme: Scheme, shards: Shards, k: int) -> None:
    """The layer of this rank computes its `shards`."""
    assert is_attached(layer)
    x = torch.randn(7, k, generator=torch.Generator().manual_seed(1)).bfloat16()
    if scheme is PLAIN:
        expected = [linear_cases.Layer(x, each, "bf16", None) for each in shards["weight"]]
    else:
        expected = scheme.layers(x, shards)
    check_shards(expected, layer.quant_method.apply(layer, x))


@on_ranks
@pytest.mark.parametrize("kv_heads", KV_HEADS)
@in_schemes(SCHEMES)
def test_heads_of_eight_ranks(
    engine: LinearEngine, device: str, name: str, kv_heads: int, number: int
) -> None:
    scheme = SCHEMES[name]
    head, columns = sizes(scheme)
    heads = {"q": HEADS, "k": kv_heads, "v": kv_heads}
    whole = tensors_of(scheme, [count * head for count in heads.values()], columns)
    by_shard = {each: dict(zip(heads, values, strict=True)) for each, values in whole.items()}
    with engine.on_rank(number, RANKS, device) as make:
        arguments = columns, head, HEADS, kv_heads
        layer = layer_of(engine, scheme, by_shard, make, "QKVParallelLinear", *arguments)
    mine: Shards = {parameter: [] for parameter in whole}
    for index, count in enumerate(heads.values()):
        each = max(count // RANKS, 1)
        first = number * count // RANKS // each * each
        for parameter, values in whole.items():
            value = values[index]
            of_a_head = len(value) // count if value.numel() > 1 else 0
            rows = slice(first * of_a_head, (first + each) * of_a_head)
            mine[parameter].append(value[rows] if of_a_head else value)
    check(layer, scheme, mine, columns)


@on_ranks
@in_schemes(SCHEMES)
def test_columns_of_eight_ranks(engine: LinearEngine, device: str, name: str, number: int) -> None:
    scheme = SCHEMES[name]
    _, columns = sizes(scheme)
    n = N if columns == 448 else FP8_BLOCK
    whole = tensors_of(scheme, [n], RANKS * columns)
    by_shard = {parameter: {"": value} for parameter, (value,) in whole.items()}
    with engine.on_rank(number, RANKS, device) as make:
        arguments = RANKS * columns, n
        layer = layer_of(engine, scheme, by_shard, make, "RowParallelLinear", *arguments)
    mine: Shards = {}
    for parameter, (value,) in whole.items():
        is_cut = value.ndim == 2 and value.shape[1] > 1
        mine[parameter] = [value.chunk(RANKS, 1)[number].contiguous() if is_cut else value]
    check(layer, scheme, mine, columns)
