"""In which order memory, LDS and scalar loads return, and how many of them a wave may have."""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend.timing.workloads.buffers import zeros
from tests.emulator.assembly import needs_llvm
from tests.emulator.timing.programs import clocks

pytestmark = needs_llvm

START = "v_mov_b32 v2, 0\n v_mov_b32 v3, 0\n v_mov_b32 v4, s4\n v_mov_b32 v5, s5\n"
FAR, NEAR = "global_load_dword v6, v1, s[4:5] offset:2048\n", "global_load_dword v7, v1, s[4:5]\n"
READ, SCALAR = "ds_read_b32 v8, v3\n", "s_load_dword s10, s[4:5], 0x0\n"
SLOW = 100_000
"""Clocks that nothing else here takes."""


def data() -> np.ndarray:
    return zeros((1 << 16,), np.uint32)


def taken(body: str, **changes: float) -> int:
    return clocks(START + body, changes, data=data(), lds=65536)


def test_memory_returns_in_order() -> None:
    """The second load hits the L1, and is done no sooner than the first."""
    held = NEAR + "s_waitcnt vmcnt(0)\n"
    both = held + FAR + NEAR + "s_waitcnt vmcnt(1)\n"
    assert taken(both, hbm_latency=SLOW) > 2 * SLOW
    assert taken(held + FAR + NEAR, hbm_latency=SLOW) < 1.1 * SLOW


def test_scalar_loads_return_when_they_are_done() -> None:
    """Not after the reads of the LDS that were issued before them."""
    one_left = READ + SCALAR + "s_waitcnt lgkmcnt(1)\n"
    assert taken(one_left, lds_latency=SLOW) < SLOW
    assert taken(READ + SCALAR + "s_waitcnt lgkmcnt(0)\n", lds_latency=SLOW) > SLOW


@pytest.mark.parametrize("counter", ["vmcnt(0)", "lgkmcnt(0)"])
def test_flat_loads_count_in_both_counters(counter: str) -> None:
    load = f"flat_load_dword v6, v[4:5]\n s_waitcnt {counter}\n"
    assert taken(load, hbm_latency=SLOW) > SLOW


@pytest.mark.parametrize(
    ("instruction", "most", "unlimited"),
    [
        (FAR, 63, {"hbm_latency": SLOW, "vector_memory_queue": SLOW}),
        (READ, 15, {"lds_latency": SLOW, "lds_queue": SLOW}),
        (SCALAR, 15, {"scalar_latency": SLOW}),
    ],
    ids=["vmcnt", "lgkmcnt of the LDS", "lgkmcnt of scalar loads"],
)
def test_a_wave_waits_where_its_counter_is_full(
    instruction: str, most: int, unlimited: dict[str, float]
) -> None:
    before = taken("", **unlimited)
    assert taken(instruction * most, **unlimited) < before + SLOW
    assert before + SLOW < taken(instruction * (most + 1), **unlimited) < before + 2 * SLOW
