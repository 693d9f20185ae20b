"""Sliding windows and sinks on the attention kernels that have them, against float64.

Keys and values that no query of a request sees hold NaN (tests/ops/cases). Before the first
window's tile, the block table holds invalid numbers.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.masks import WINDOWED
from hk_backend.kernels.row_sources import PACKED
from tests.kernels.attention_launch import Launch, bits, kernels, passes
from tests.ops.cases import Case, make
from tests.seed import fixed

WINDOWS = (1, 2, 15, 31, 32, 33, 63, 64, 65, 95, 127, 128, 129, 191, 256, 300, 5000)
"""Window sizes: edges of waves and of tiles, and more than there are keys."""
QUERIES = (1, 5, 31, 32, 33, 64, 127, 128, 129, 255, 256, 257, 300)
CACHED = (0, 1, 31, 32, 63, 64, 65, 127, 200, 449)
KEYS = 64
"""Keys of a tile."""
JUNK = (-1, 2**31 - 1)


def windowed(**axes: Any) -> Any:
    return kernels(mask=WINDOWED, **axes)


def launch_of(entry: KernelEntry, case: Case, sinks: torch.Tensor | None = None) -> Launch:
    """A launch of `case`, with `sinks` if given. Its block table has valid numbers only where the
    kernels may look."""
    call = make(Launch.fitting(entry, case))
    if sinks is not None:
        call["sinks"] = sinks
    launch = Launch.of(entry, call)
    if entry.facts["keys"] != PACKED and case.sliding_window:
        size = call["paged_kv"].block_size
        for row, (queries, keys) in zip(call["block_table"], case.lengths, strict=True):
            first = max(keys - queries + 1 - case.sliding_window, 0) // KEYS * KEYS
            row[: min(first, keys) // size] = JUNK[first % 128 // KEYS]
    return launch


@windowed(window=WINDOWS)
def test_windows_at_the_edges_of_tiles(entry: KernelEntry, window: int) -> None:
    random = fixed(f"windows {entry.name} {window}")
    pairs = random.sample(tuple(itertools.product(QUERIES, CACHED)), 8)
    lengths = tuple((queries, queries + cached) for queries, cached in pairs)
    sinks = random.choice((False, True))
    case = Case(lengths, 1, sliding_window=window, sinks=sinks, block_size=32, magnitude=4.0)
    passes(launch_of(entry, case))


@windowed(block_size=(3, 16, 48, 80, 256))
def test_windows_in_any_batch(entry: KernelEntry, block_size: int) -> None:
    """Some requests have no queries or keys, and query heads share a KV head."""
    random = fixed(f"batches {entry.name} {block_size}")
    lengths = ((70, 330), (0, 90), (3, 0), (300, 301), (1, 700))
    case = Case(
        lengths, 4, 2, block_size=block_size, before=random.choice((0, 300)), after=3,
        scale=random.choice((None, -0.1, 0.0)), sliding_window=77, sinks=True,
    )  # fmt: skip
    passes(launch_of(entry, case))


@windowed()
def test_windows_within_one_tile(entry: KernelEntry) -> None:
    """The first tile is the last: values before a window and past the last key, in either half."""
    lengths = ((1, 38), (1, 100), (5, 46), (32, 64), (3, 127))
    passes(launch_of(entry, Case(lengths, 1, sliding_window=15)))


@windowed()
def test_a_window_that_slides_over_many_tiles(entry: KernelEntry) -> None:
    """Whole tiles lie between the window's two ends, and every stage of the rings is used many
    times."""
    case = Case(((260, 3000), (1, 4097)), 1, sliding_window=1000, block_size=256)
    passes(launch_of(entry, case))


@windowed(causal=(True, False))
def test_sinks_without_a_window(entry: KernelEntry, causal: bool) -> None:
    lengths = ((70, 330), (300, 300), (40, 0), (5, 9))
    for magnitude in (0.5, 12.0):
        case = Case(lengths, 4, 2, causal=causal, sinks=True, magnitude=magnitude)
        passes(Launch(entry, case))


@windowed(window=(None, 50))
def test_sinks_of_any_size(entry: KernelEntry, window: int | None) -> None:
    """Sinks reach from no weight at all to all of the weight."""
    case = Case(((70, 130), (40, 0)), 6, 2, sinks=True, sliding_window=window)
    sinks = torch.tensor([-math.inf, -1e4, -3.0, 0.0, 30.0, 1e4])
    passes(launch_of(entry, case, sinks))


@windowed()
def test_a_sink_of_minus_infinity_is_none(entry: KernelEntry) -> None:
    case = Case(((70, 130), (9, 0)), 2, sliding_window=50)
    without = passes(launch_of(entry, case))
    outcome = passes(launch_of(entry, case, torch.full((2,), -math.inf)))
    assert torch.equal(bits(outcome.out), bits(without.out))
    assert torch.equal(bits(outcome.lse), bits(without.lse))


@windowed()
def test_a_sink_of_plus_infinity_takes_all_the_weight(entry: KernelEntry) -> None:
    case = Case(((70, 130), (9, 0)), 2, sliding_window=50)
    outcome = launch_of(entry, case, torch.full((2,), math.inf)).run()
    assert [finding.message for finding in outcome.findings] == []
    assert not outcome.out.any()
    assert (outcome.lse == math.inf).all()


@windowed()
def test_the_order_of_waves_does_not_matter(entry: KernelEntry) -> None:
    """Any interleaving gives the very same bits."""
    case = Case(((300, 420), (33, 97)), block_size=48, sliding_window=70, sinks=True)
    launch = launch_of(entry, case)
    outcomes = [passes(launch, seed) for seed in range(6)]
    for other in outcomes[1:]:
        assert torch.equal(bits(other.out), bits(outcomes[0].out))
        assert torch.equal(bits(other.lse), bits(outcomes[0].lse))


@windowed()
def test_without_window_and_sinks_it_computes_what_the_others_do(entry: KernelEntry) -> None:
    passes(Launch(entry, Case(((70, 330), (300, 300), (5, 0)), 2)))


@windowed(dtype=("bf16",), window=(64, 100, 256))
def test_tiles_before_a_window_are_not_copied(entry: KernelEntry, window: int) -> None:
    """A prefix that no query sees costs nothing."""
    copied = []
    for cached in (1000, 3000):
        case = Case(((100, 100 + cached // KEYS * KEYS),), 1, sliding_window=window)
        outcome = passes(launch_of(entry, case))
        copied.append(
            (outcome.report.counters.bytes["lds_copy"], outcome.report.counters.matrix_flops)
        )
    assert copied[0] == copied[1]
