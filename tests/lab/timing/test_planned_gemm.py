"""The planner's choices for narrow layers keep to a bar, by the timing model."""

from __future__ import annotations

import functools

import pytest

from hk_backend.kernels import catalogue
from hk_backend.kernels.costs import costs
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_operands import LAYERS, family
from hk_backend.lab.bench.gemm.timers import Clock, Problem

RATES = {"bf16": 1600e6, "fp8_channel": 3050e6, "fp8_block": 2600e6}
"""FLOPs in a microsecond that each format reaches at 8192^3, or a little more."""
MEMORY_RATE = 6.5e6
"""Memory's rate, in bytes per microsecond."""
LARGEST = 1.4
"""Largest ratio of a time to its bar. The bar is 4 us plus the larger of two times: FLOPs / (0.75
of the rate), and bytes / (0.9 of memory's)."""
SHAPES = ((128, 768, 4096), (512, 768, 4096), (512, 1280, 8192), (256, 4096, 14336))
"""Shapes (M, N, K) at which the planner's costs of reading ahead and of summing splits decide."""


@functools.cache
def clock() -> Clock:
    return Clock("gfx950", 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("of", RATES)
def test_a_narrow_layer_keeps_to_its_bar(of: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    format = LAYERS[of]
    units = clock().compute_units
    choice = planned(family(catalogue("gfx950"), format), m, n, k, units)
    taken = clock().microseconds(choice.entry, choice.splits, Problem(format, m, n, k))
    taken -= costs("gfx950").launch_microseconds
    width = 1 if format.weights == "e4m3" else 2
    memory = n * k * width / (0.9 * MEMORY_RATE)
    bar = 4 + max(2 * m * n * k / (0.75 * RATES[of]), memory)
    assert taken <= LARGEST * bar, f"{choice.entry.name} in {choice.splits} splits"
