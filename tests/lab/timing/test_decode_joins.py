"""The tree in which decode's partial results are joined, as the clock takes it from the kernel."""

from __future__ import annotations

from collections import Counter

import pytest

from hk_backend.kernels.decode_plan import FAN, Piece

FIRST = 3
"""The share that begins the request."""


@pytest.mark.parametrize("parts", [2, 7, 8, 9, 11, 12, 16, 17, 63, 64, 65, 71, 128, 512, 513, 768])
def test_each_counter_gets_its_results_once(parts: int) -> None:
    pieces = [Piece(FIRST + part, 0, 1, parts, FIRST) for part in range(parts)]
    arrivals = [arrival for piece in pieces for arrival in piece.arrivals()]
    found = Counter(arrival.counter for arrival in arrivals)
    joins = [arrival for arrival in arrivals if arrival.joins]
    assert found == {arrival.counter: arrival.results for arrival in arrivals}
    assert sorted(arrival.counter for arrival in joins) == sorted(found)
    assert max(found.values()) <= FAN
    assert set(found) <= set(range(FIRST, FIRST + parts - 1)), "the last share may begin another"
    levels = list(pieces[-1].arrivals())
    top = levels[-1]
    assert (top.joins, top.counter) == (True, max(found)), "the last share gets to the top"
    lowest = [found[FIRST + group] for group in range(-(-parts // FAN))]
    assert min(lowest) >= min(parts, FAN // 2), "too few places for joint results of higher levels"


def test_a_request_of_one_workgroup_has_no_counter() -> None:
    assert list(Piece(FIRST, 0, 1, 1, FIRST).arrivals()) == []
