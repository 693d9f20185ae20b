"""Linear biases (ALiBi) on the attention kernels that have them, against float64.

The tests of all kernels cover the rest of these kernels, with slopes in causal cases
(attention_launch.py).
"""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.masks import ALIBI
from tests.kernels.attention_launch import Launch, Outcome, kernels, passes
from tests.ops.cases import Case, make
from tests.ops.oracle import U

LENGTHS = ((70, 330), (0, 9), (40, 0), (300, 300), (5, 9))


def biased(**axes: Any) -> Any:
    return kernels(mask=(ALIBI,), **axes)


def with_slopes(entry: KernelEntry, case: Case, slopes: torch.Tensor | None) -> Outcome:
    call = make(Launch.fitting(entry, case))
    call["alibi_slopes"] = slopes
    return passes(Launch.of(entry, call))


@biased(heads=((32, 8), (8, 1), (9, 3), (4, 4)), scale=(None, 0.0, -0.3, 2.0**-60))
def test_each_head_has_its_slope(
    entry: KernelEntry, heads: tuple[int, int], scale: float | None
) -> None:
    passes(Launch(entry, Case(((33, 97), (3, 0), (5, 5)), *heads, scale=scale)))


@biased(slope=(0.0, 1e-30, -0.3, 4.0, 1e4))
def test_slopes_of_any_size(entry: KernelEntry, slope: float) -> None:
    """Slopes rise and fall along the keys, from no effect to all weight on the nearest key."""
    slopes = torch.tensor([slope, -slope, 0.5, 0.0])
    with_slopes(entry, Case(LENGTHS, 4, 2, block_size=48), slopes)


@biased(window=(1, 33, 64, 100), sinks=(True, False))
def test_with_windows_and_sinks(entry: KernelEntry, window: int, sinks: bool) -> None:
    lengths = ((70, 330), (5, 46), (129, 129), (3, 0))
    passes(Launch(entry, Case(lengths, 4, 2, sliding_window=window, sinks=sinks)))


@biased()
def test_biases_alone_over_a_long_row(entry: KernelEntry) -> None:
    """Scores are equal: the log-sum-exp is that of the biases, a geometric sum. Each bias has
    three roundings of its own size, and those with a weight are small."""
    case = Case(((2, 6001), (40, 4097)), 2, scale=0.0, block_size=256)
    slopes = torch.tensor([2.0**-9, 2.0**-3])
    outcome = with_slopes(entry, case, slopes)
    for head, slope in enumerate(slopes.double()):
        for row, seen in ((0, 6000), (1, 6001), *((2 + i, 4058 + i) for i in range(40))):
            biases = -slope * torch.arange(seen, dtype=torch.float64)
            exact = torch.logsumexp(biases, 0)
            strayed = 5 * U * (torch.softmax(biases, 0) @ biases.abs()) + seen * U + 8 * U * exact
            assert abs(float(outcome.lse[head, row] - exact)) <= float(strayed)


@biased(keys=("packed",))
def test_rising_biases_rescale(entry: KernelEntry) -> None:
    """Biases rise by more than 2^8 from tile to tile: each row's maximum moves in every one."""
    with_slopes(entry, Case(((130, 700),), 2), torch.tensor([0.2, 40.0]))


@biased()
def test_without_slopes_it_computes_what_the_others_do(entry: KernelEntry) -> None:
    for causal in (True, False):
        case = Case(LENGTHS, 4, 2, causal=causal)
        with_slopes(entry, case, None)
