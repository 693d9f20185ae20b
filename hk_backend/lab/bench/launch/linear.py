"""Linear layers for `bench launch`, called in the way of both engines' plugins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from hk_backend.engine.linear.original import Original
from hk_backend.engine.linear.route import apply, attach
from hk_backend.lab.bench.launch import nothing
from hk_backend.ops import pack_weight
from hk_backend.ops.linear import SCHEMA, linear_shape

N, K, DTYPE = 1024, 1024, torch.bfloat16


@dataclass(frozen=True)
class LinearStep:
    """A step through layers of one kind with `m` rows; `launches`: number for each layer."""

    format: str
    activations: str
    m: int
    launches: int


STEPS = {
    "linear bf16, 1 row": LinearStep("bf16", "none", 1, 1),
    "linear bf16, 512 rows": LinearStep("bf16", "none", 512, 1),
    "linear fp8 per token, 1 row": LinearStep("fp8_e4m3fn", "token", 1, 2),
    "linear fp8 per token, 512 rows": LinearStep("fp8_e4m3fn", "token", 512, 2),
}


def layers(step: LinearStep, count: int) -> list[Callable[[], object]]:
    """Forward calls of `count` layers, each with its own weight, on the same rows."""
    x = torch.zeros(step.m, K, dtype=DTYPE)
    return [partial(apply, _layer(step), x) for _ in range(count)]


def _layer(step: LinearStep) -> torch.nn.Module:
    weight, scales = torch.zeros(N, K, dtype=DTYPE), None
    if step.format != "bf16":
        weight, scales = weight.to(torch.float8_e4m3fn), torch.full((N,), 0.5)
    packed = pack_weight(weight, step.format, scales, activations=step.activations)
    layer = torch.nn.Module()
    attach(layer, packed, Original("", weight, step.format, scales, step.activations, None))
    return layer


def empty_operator(step: LinearStep) -> Callable[[], object]:
    """A call with `linear`'s arguments to an operator that only allocates its result."""
    buffers, ints = _layer(step)._buffers, [0, N, K, 0, 0]
    weight = [buffers.get(f"hk_{of}") for of in ("data", "factors", "block_scales", "input_scale")]
    x = torch.zeros(step.m, K, dtype=DTYPE)
    operator = nothing.empty_operator(f"linear({SCHEMA}) -> Tensor", linear_shape)
    return partial(operator, x, *weight, ints, None, DTYPE, None)
