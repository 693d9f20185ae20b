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
    lengths: list[int], rows: int, last_first: bool, spare: int = 0
) -> list[tuple[int, ...]]:
    """(request, first row, start, length) of every slot that has a tile, in order of the slots.

    Asserts that each also got its request's element of an array beside the starts, and the next.
    """
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    tokens = int(starts[-1])
    slots = -(-tokens // rows) + len(lengths) + spare
    beside = 7 + 3 * np.arange(len(lengths), dtype=np.int32)
    out = np.empty((slots, 7), np.uint32)
    launch(
        f"query_tiles_{rows}", starts, beside, out,
        numbers=[len(lengths), tokens, int(last_first), len(beside)], grid=slots,
    )  # fmt: skip
    found = [row for row in out.tolist() if row[0]]
    with_end = [*beside.tolist(), 0]
    assert all(row[5:] == with_end[row[1] : row[1] + 2] for row in found)
    return [tuple(row[1:5]) for row in found]


def tiles_of(lengths: list[int], rows: int) -> list[tuple[int, ...]]:
    """The same, said plainly: every tile of every request."""
    starts = np.cumsum([0, *lengths]).tolist()
    return [
        (request, first, starts[request], length)
        for request, length in enumerate(lengths)
        for first in range(0, length, rows)
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
    last_first=st.booleans(),
    spare=st.integers(0, 3),
)
def test_query_tiles(lengths: list[int], rows: int, last_first: bool, spare: int) -> None:
    """Every tile of a ragged batch is found once, by one of as many workgroups as the grid has."""
    found = find_tiles(lengths, rows, last_first, spare)
    assert sorted(found) == tiles_of(lengths, rows)


@pytest.mark.parametrize("requests", [64, 65, 4096, 4097, 5000])
@pytest.mark.parametrize("kind", ["one token", "ragged", "mostly empty"])
def test_query_tiles_of_many_requests(requests: int, kind: str) -> None:
    rng = np.random.default_rng(requests)
    lengths = {
        "one token": np.ones(requests, int),
        "ragged": rng.integers(0, 40, requests),
        "mostly empty": rng.integers(1, 600, requests) * (rng.random(requests) < 0.02),
    }[kind].tolist()
    assert sorted(find_tiles(lengths, 256, False)) == tiles_of(lengths, 256)


@pytest.mark.parametrize("last_first", [False, True])
def test_the_longest_tiles_of_a_request_may_come_first(last_first: bool) -> None:
    """Under a causal mask its last tile has the most keys: started first, it does not end alone."""
    found = find_tiles([100, 33], 32, last_first)
    rows = {request: [first for r, first, *_ in found if r == request] for request in (0, 1)}
    assert rows == {
        0: sorted([0, 32, 64, 96], reverse=last_first),
        1: sorted([0, 32], reverse=last_first),
    }


def test_tokens_past_the_batch_are_no_request_s() -> None:
    """query_start_loc may end past num_tokens: rows that do not exist make no tile."""
    starts, out = np.array([0, 300, 900], np.int32), np.empty((4, 7), np.uint32)
    launch("query_tiles_256", starts, starts, out, numbers=[2, 400, 0, 3], grid=4)
    found = [tuple(row[1:5]) for row in out.tolist() if row[0]]
    assert sorted(found) == [(0, 0, 0, 300), (0, 256, 0, 300), (1, 0, 300, 100)]
