"""Which workgroup computes what: each thing once, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.strategies import generated
from tests.tiles.launch import launch

XCDS = 8


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 32, 64, 100, 1000, 4096])
def test_neighbours_on_one_xcd(count: int) -> None:
    """A permutation; where XCDs divide the count, each XCD gets neighbours."""
    items = np.empty(count, np.uint32)
    launch("xcd_order", items, numbers=[count])
    assert sorted(items.tolist()) == list(range(count))
    if count % XCDS == 0:
        for xcd in range(XCDS):
            np.testing.assert_array_equal(
                items[xcd::XCDS], xcd * (count // XCDS) + np.arange(count // XCDS)
            )


def find_tiles(
    lengths: list[int], rows: int, group: int = 1, spare: int = 0
) -> list[tuple[int, ...]]:
    """(request, first row, start, length) of every slot that has a tile, in order of the slots;
    tokens have `group` rows each.

    Asserts that each also got its request's element of an array beside the starts, and the next.
    """
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    tokens = int(starts[-1])
    slots = max(-(-tokens * group // rows) + len(lengths) - 1 + spare, 1)
    beside = 7 + 3 * np.arange(len(lengths), dtype=np.int32)
    out = np.empty((slots, 7), np.uint32)
    launch(
        f"query_tiles_{rows}", starts, beside, out,
        numbers=[len(lengths), tokens, group, len(beside)], grid=slots,
    )  # fmt: skip
    found = [row for row in out.tolist() if row[0]]
    with_end = [*beside.tolist(), 0]
    assert all(row[5:] == with_end[row[1] : row[1] + 2] for row in found)
    return [tuple(row[1:5]) for row in found]


def tiles_of(lengths: list[int], rows: int, group: int = 1) -> list[tuple[int, ...]]:
    """The same, said plainly: every tile of every request."""
    starts = np.cumsum([0, *lengths]).tolist()
    return [
        (request, first, starts[request], length)
        for request, length in enumerate(lengths)
        for first in range(0, length * group, rows)
    ]


@generated(60)
@given(
    lengths=st.lists(
        st.one_of(
            st.integers(0, 2),
            st.sampled_from([31, 32, 33, 255, 256, 257, 513]),
            st.integers(0, 700),
        ),
        min_size=1,
        max_size=90,
    ),
    rows=st.sampled_from([32, 256]),
    group=st.sampled_from([1, 1, 2, 3, 7, 8]),
    alike=st.booleans(),
    spare=st.integers(0, 3),
)
def test_query_tiles(lengths: list[int], rows: int, group: int, alike: bool, spare: int) -> None:
    """Every tile of a ragged batch is found once, by one of as many workgroups as the grid has;
    also of requests of nearly the same length, which take turns."""
    if alike:
        lengths = [lengths[0] + length % 2 for length in lengths]
    found = find_tiles(lengths, rows, group, spare)
    assert sorted(found) == tiles_of(lengths, rows, group)


@pytest.mark.parametrize("requests", [64, 65, 4096, 4097, 5000])
@pytest.mark.parametrize("kind", ["one token", "ragged", "mostly empty"])
def test_query_tiles_of_many_requests(requests: int, kind: str) -> None:
    rng = np.random.default_rng(requests)
    lengths = {
        "one token": np.ones(requests, int),
        "ragged": rng.integers(0, 40, requests),
        "mostly empty": rng.integers(1, 600, requests) * (rng.random(requests) < 0.02),
    }[kind].tolist()
    assert sorted(find_tiles(lengths, 256)) == tiles_of(lengths, 256)


def test_the_longest_tiles_of_a_request_come_first() -> None:
    """Under a causal mask its last tile has the most keys: started first, it does not end alone."""
    assert [each[:2] for each in find_tiles([300, 33], 32)] == [
        *((0, first) for first in range(288, -1, -32)),
        *((1, first) for first in (32, 0)),
    ]


def test_requests_of_like_lengths_take_turns() -> None:
    """The longest tiles of all come first; a shorter request waits for its turn."""
    found = find_tiles([128, 128, 96], 32)
    assert [each[:2] for each in found] == [
        (0, 96), (1, 96),
        *((request, first) for first in (64, 32, 0) for request in (0, 1, 2)),
    ]  # fmt: skip


def test_tokens_past_the_batch_are_no_request_s() -> None:
    """query_start_loc may end past num_tokens: rows that do not exist make no tile."""
    starts, out = np.array([0, 300, 900], np.int32), np.empty((4, 7), np.uint32)
    launch("query_tiles_256", starts, starts, out, numbers=[2, 400, 1, 3], grid=4)
    found = [tuple(row[1:5]) for row in out.tolist() if row[0]]
    assert sorted(found) == [(0, 0, 0, 300), (0, 256, 0, 300), (1, 0, 300, 100)]
