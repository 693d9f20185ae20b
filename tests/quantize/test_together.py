"""Threads that run parts of a computation and meet for what they share."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from hk_backend.quantize.together import Together


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_parts_meet_once_with_all_of_torch_s_threads() -> None:
    """The shared step is computed once, after all parts and before any goes on."""
    together, order = Together(8), []
    assert together.count == 3
    assert Together(2).count == 2

    def run(part: str) -> tuple[str, int, int]:
        for step in range(5):
            order.append((step, together.part))
            together.once(lambda at=step: order.append((at, torch.get_num_threads(), "once")))
        return part, together.part, torch.get_num_threads()

    assert together.run(run, "abc") == [("a", 0, 1), ("b", 1, 1), ("c", 2, 1)]
    assert torch.get_num_threads() == 3
    for step in range(5):
        met = order[4 * step : 4 * step + 4]
        assert sorted(met[:3]) == [(step, part) for part in range(3)]
        assert met[3] == (step, 3, "once")


@pytest.mark.parametrize("shared", [False, True])
def test_a_failure_ends_all_parts(shared: bool) -> None:
    """The error of one part, or of the shared step, is raised, and no thread waits for ever."""
    together = Together(3)

    def fail() -> None:
        raise ZeroDivisionError

    def run(part: int) -> None:
        if part == 2 and not shared:
            fail()
        together.once(fail if shared else lambda: None)

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            together.run(run, range(3))
    assert torch.get_num_threads() == 3
    assert threading.active_count() < 10
    assert together.run(lambda part: part, range(3)) == [0, 1, 2], "it can be used again"
