"""A rank's part of q, k and v that eight ranks share, with a head of keys for each rank or one for
four. What a rank has of a layer's columns is in test_rotated.py."""

from __future__ import annotations

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

RANKS, HEADS = 8, 16
K = 448
"""Of 3584 the eighth part, 7 halves of a kernel's step."""
PLAIN = Scheme("not quantised", lambda w: Layer({"weight": w.bfloat16()}, w), {}, format="bf16")
NAMES = "fp8-static", "fp8-block", "ct-channel-token", "ct-mxfp4", "quark-mxfp6_e2m3", "hk-mxfp8"
SCHEMES = {PLAIN.name: PLAIN} | {name: LAYERS[name] for name in NAMES}
"""Of each way to store scales one at least: a rank's tensors are cut by it."""


@pytest.mark.parametrize("number", [0, 5])
@pytest.mark.parametrize("kv_heads", [8, 2])
@in_schemes(SCHEMES)
def test_heads_of_eight_ranks(
    engine: LinearEngine, device: str, name: str, kv_heads: int, number: int
) -> None:
    scheme, heads = SCHEMES[name], {"q": HEADS, "k": kv_heads, "v": kv_heads}
    # whole blocks where scales are of blocks
    head, k = (FP8_BLOCK, 2 * FP8_BLOCK) if scheme.scale_kind == "block" else (16, K)
    config = engine.config_of(scheme.config) if scheme.config else None
    mine: Shards = {}
    with engine.on_rank(number, RANKS, device) as make:
        arguments = k, head, HEADS, kv_heads
        layer = make("QKVParallelLinear", *arguments, quant_config=config, prefix="model.some_proj")
    for seed, (shard, count) in enumerate(heads.items()):
        values = torch.randn(count * head, k, generator=torch.Generator().manual_seed(seed))
        values *= 4.0**-seed * torch.linspace(0.5, 2.0, len(values))[:, None]
        tensors = dict(scheme.layer(values).tensors)
        if scheme.static:
            tensors["input_scale"] = torch.tensor(0.01 + 0.005 * seed)
        each = max(count // RANKS, 1)
        first = number * count // RANKS // each * each
        for parameter, value in tensors.items():
            held = layer.get_parameter(parameter)
            held.weight_loader(held, value, shard)
            of_a_head = len(value) // count if value.numel() > 1 else 0
            rows = slice(first * of_a_head, (first + each) * of_a_head)
            mine.setdefault(parameter, []).append(value[rows] if of_a_head else value)
    layer.quant_method.process_weights_after_loading(layer)
    assert is_attached(layer)
    x = torch.randn(7, k, generator=torch.Generator().manual_seed(1)).bfloat16()
    if scheme is PLAIN:
        expected = [linear_cases.Layer(x, each, "bf16", None) for each in mine["weight"]]
    else:
        expected = scheme.layers(x, mine)
    check_shards(expected, layer.quant_method.apply(layer, x))
