"""Times of decode as its planner estimates them, beside the timing model's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest

from hk_backend.kernels import KernelEntry, catalogue, decode_plan
from hk_backend.kernels.masks import ALL_KEYS
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads.attention_decode import Shape, batch, launch
from tests.seed import draw

UNITS, DRAWN = 256, 6
ERROR, FARTHEST = 0.1, 1.3
"""Largest rms error of all estimates, and largest factor by which one is off."""
NAMES = [
    "attention_decode_bf16_d64_paged_r64",
    "attention_decode_bf16_d64_paged_r128",
    "attention_decode_bf16_d64_paged_e4m3_r64",
    "attention_decode_f16_d64_any_pages_e4m3_r64",
    "attention_decode_bf16_d128_paged_r64",
    "attention_decode_f16_d128_split_r128",
    "attention_decode_bf16_d128_tokens_e4m3_r64",
    "attention_decode_bf16_d256_paged_r128",
]
SHAPES = {
    **{
        f"{heads}/{kv_heads} {requests}x{keys}": batch(requests, keys, heads, kv_heads)
        for (heads, kv_heads), requests, keys in itertools.product(
            ((32, 8), (9, 3), (8, 1)), (1, 8, 32), (512, 4096)
        )
    },
    "32/8 128x2048": batch(128, 2048),
    "32/8 8x4096, a window": Shape([1] * 8, [4096] * 8, 32, 8, window=1024),
}
"""Batches of a contest (engine/decode_rows.py), a larger one, and one with a window."""


def estimated(kernel: KernelEntry, of: Shape) -> float:
    """The planner's microseconds, over the timing model's behind another launch."""
    requests, window = zip(of.keys, of.queries, strict=True), of.window or ALL_KEYS
    tiles = [decode_plan.key_tiles(kernel, keys, tokens, window) for keys, tokens in requests]
    found = decode_plan.microseconds(kernel, tiles, of.kv_heads, UNITS)
    clocked = model.time(trace(launch(kernel, of), threads=1))
    apart = clocked.microseconds - clocked.parameters["launch"]
    return float(found / (apart + decode_plan.CLOCK.launch_microseconds))


def cases() -> Iterator[Any]:
    """Every kernel on every shape; those that the commit does not draw are slow."""
    every = list(itertools.product(NAMES, SHAPES))
    drawn = draw("decodes").sample(every, DRAWN)
    for case in every:
        yield pytest.param(*case, marks=[] if case in drawn else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "shape"), list(cases()))
def test_an_estimate_is_near_the_model(name: str, shape: str) -> None:
    ratio = estimated(catalogue("gfx950").kernel(name), SHAPES[shape])
    assert 1 / FARTHEST < ratio < FARTHEST


@pytest.mark.slow
def test_the_estimates_of_all_are_nearer() -> None:
    kernels = [catalogue("gfx950").kernel(name) for name in NAMES]
    ratios = [estimated(*case) for case in itertools.product(kernels, SHAPES.values())]
    assert math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios)) < ERROR
