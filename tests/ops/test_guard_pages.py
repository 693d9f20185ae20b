"""No byte outside the tensors is read or written, not even within a vector's width of an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forked import Programs


@pytest.mark.parametrize(("calls", "at_least"), [("attention", 2000), ("linear_layers", 1000)])
def test_nothing_outside_the_tensors_is_touched(
    calls: str, at_least: int, isa: str, programs: Programs
) -> None:
    program = Path(__file__).with_name("guard_pages.py")
    printed = programs.check(program, calls, HK_DEVICE=f"cpu:{isa}")
    guarded, used = printed.splitlines()[-1].split(" guarded tensors on ")
    assert used == f"cpu:{isa}"
    assert int(guarded) > at_least


def test_a_touched_guard_page_ends_the_program(programs: Programs) -> None:
    """The control: one element past a guarded tensor."""
    done = programs.run(
        "import torch\n"
        "from tests.ops.guard_pages import guarded\n"
        "x = guarded(torch.ones(100), 'after')\n"
        "print(float(x.sum()), flush=True)\n"
        "x.as_strided((1,), (1,), x.storage_offset() + 100).item()"
    )
    assert done.printed == "100.0\n", done.log
    assert done.exit_code < 0
