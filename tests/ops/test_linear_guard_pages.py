"""No byte outside the tensors of a linear layer is read or written."""

from __future__ import annotations

from tests.ops.test_attention_guard_pages import run


def test_nothing_outside_the_tensors_is_touched(isa: str) -> None:
    done = run("tests.ops.linear_guard_pages", "-m", HK_DEVICE=f"cpu:{isa}", OMP_NUM_THREADS="1")
    assert done.returncode == 0, f"ended by {done.returncode}: {done.stderr[-2000:]}"
    guarded, _, rest = done.stdout.partition(" ")
    assert rest.strip() == "guarded tensors"
    assert int(guarded) > 1000
