"""No byte outside the tensors is read or written, not even within a vector's width of an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forked import Programs


@pytest.mark.parametrize(("calls", "at_least"), [("attention", 1000), ("linear_layers", 1000)])
def test_nothing_outside_the_tensors_is_touched(
    calls: str, at_least: int, isa: str, programs: Programs
) -> None:
    program = Path(__file__).with_name("guard_pages.py")
    printed = programs.check(program, calls, HK_DEVICE=f"cpu:{isa}")
    guarded, used = printed.splitlines()[-1].split(" guarded tensors on ")
    assert used == f"cpu:{isa}"
    assert int(guarded) > at_least
