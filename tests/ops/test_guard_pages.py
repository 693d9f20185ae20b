"""No byte outside the tensors is read or written, not even within a vector's width of an end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments, program],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("program", "at_least"), [("guard_pages", 2000), ("linear_guard_pages", 1000)]
)
def test_nothing_outside_the_tensors_is_touched(program: str, at_least: int, isa: str) -> None:
    done = run(f"tests.ops.{program}", "-m", HK_DEVICE=f"cpu:{isa}", OMP_NUM_THREADS="1")
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    guarded, _, rest = done.stdout.partition(" ")
    assert rest.strip() == "guarded tensors"
    assert int(guarded) > at_least


def test_a_touched_guard_page_ends_the_program() -> None:
    """The control: one element past a guarded tensor."""
    done = run(
        "import torch\n"
        "from tests.ops.guard_pages import guarded\n"
        "x = guarded(torch.ones(100), 'after')\n"
        "print(float(x.sum()), flush=True)\n"
        "x.as_strided((1,), (1,), x.storage_offset() + 100).item()",
        "-c",
    )
    assert done.stdout == "100.0\n", done.stderr
    assert done.returncode < 0
