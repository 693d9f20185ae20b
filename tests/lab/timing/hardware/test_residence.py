"""The place of a traced launch's data follows from their size and from quiet loads' latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.timing.hardware.descriptors import stated_sizes
from hk_backend.lab.timing.hardware.dispatch import STEP, Dispatch, Launch, Line, Wave, read
from hk_backend.lab.timing.hardware.latencies import QUIET_CLOCKS, QUIET_LOADS, quiet
from hk_backend.lab.timing.hardware.residence import (
    in_hbm,
    in_infinity_cache,
    in_l2,
    loaded_bytes,
    resident,
)
from tests.lab.timing.hardware.made import ARCH, MEASURED, TURNS

PLAIN = _emulator.TimingParameters(ARCH, MEASURED)


@pytest.fixture(scope="module")
def dispatch(folder: Path) -> Dispatch:
    return read(folder)


def without_matrix(dispatch: Dispatch) -> Dispatch:
    # steps count lines of the whole listing, so only the text of a line may change
    lines = [Line("s_nop 0", line.pc, line.source) if "mfma" in line.text else line
             for line in dispatch.lines]  # fmt: skip
    return replace(dispatch, lines=lines)


def of_size(dispatch: Dispatch, waves: int) -> Dispatch:
    return replace(dispatch, launch=Launch(waves, 32))


def test_each_place_has_its_latency_and_rate() -> None:
    changes = in_infinity_cache(PLAIN)
    assert changes["hbm_latency"] == PLAIN["infinity_cache_latency"]
    assert changes["hbm"] == PLAIN["infinity_cache"] > PLAIN["hbm"]
    assert in_l2(PLAIN)["compute_unit_fabric"] == PLAIN["l2"]
    assert changes["hbm_burst"] == in_hbm()["hbm_burst"] < PLAIN["hbm_burst"]


def test_small_data_lie_in_the_l2_and_huge_ones_in_no_cache(dispatch: Dispatch) -> None:
    small = without_matrix(dispatch)
    assert sum(loaded_bytes(small, PLAIN).values()) == 256 * 4 * TURNS * 1024
    assert resident(small, PLAIN) == in_l2(PLAIN)
    per_wave = TURNS * 1024 * 8  # on all XCDs
    places = ((32 << 20, in_l2(PLAIN)), (64 << 20, in_infinity_cache(PLAIN)),
              (512 << 20, in_hbm()))  # fmt: skip
    for size, expected in places:
        assert resident(of_size(small, size // per_wave), PLAIN) == expected


def test_what_workgroups_share_has_no_size_but_that_of_its_descriptor(dispatch: Dispatch) -> None:
    """The kernel has matrix instructions, and its launch loads 512 MB."""
    huge = of_size(dispatch, (512 << 20) // (TURNS * 1024 * 8))
    assert resident(huge, PLAIN) == in_infinity_cache(PLAIN)
    for size, expected in ((300 << 20, in_hbm()), (200 << 20, in_infinity_cache(PLAIN))):
        stated = Line(f"s_mov_b32 s10, {size:#x}", 0, "")
        lines = [stated if "s_mov_b32 s5" in line.text else line for line in huge.lines]
        assert resident(replace(huge, lines=lines), PLAIN) == expected


def test_data_that_come_late_are_not_in_the_l2(dispatch: Dispatch) -> None:
    """The size fits, and the trace says otherwise."""
    assert resident(dispatch, PLAIN) == in_l2(PLAIN)
    nearer = {"l2_latency": 100.0, "infinity_cache_latency": 200.0}
    other = _emulator.TimingParameters(ARCH, {**MEASURED, **nearer})
    assert resident(dispatch, other) == in_infinity_cache(other)


def sizes(*texts: str) -> dict[int, int]:
    return stated_sizes([Line(text, 8 * number, "") for number, text in enumerate(texts)])


LOAD = "buffer_load_dword v1, v0, s[8:11], 0 offen"


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        (["s_mov_b32 s10, 0x1c00000"], 0x1C00000),
        (["s_brev_b32 s10, 24"], 0x18000000),
        (["s_movk_i32 s4, 0x80", "s_mov_b32 s10, s4"], 0x80),
        (["s_mov_b32 s10, -1"], None),
        (["s_mov_b32 s9, 0x1000"], None),
        (["s_mov_b32 s10, 0x1000", "s_load_dwordx4 s[8:11], s[0:1], 0x0"], None),
        (["s_mov_b32 s10, 0x1000", "s_mul_i32 s10, s10, s2"], None),
    ],
)
def test_a_size_is_a_constant_in_the_third_dword(moves: Sequence[str], expected: int) -> None:
    assert sizes(*moves, LOAD).get(len(moves)) == expected


def loads(count: int, apart: int, latency: int) -> Dispatch:
    """Loads in a row, and a wait for the last of them."""
    lines = [Line("buffer_load_dword v1, v0, s[8:11], 0 offen", 0, ""),
             Line("s_waitcnt vmcnt(0)", 8, "")]  # fmt: skip
    steps = np.zeros(count + 1, STEP)
    steps["clock"][:count] = np.arange(count) * apart
    issued = steps["clock"][count - 1]
    steps["line"][count], steps["clock"][count] = 1, issued + 4
    steps["clocks"][count] = latency - 4
    return Dispatch("loads", lines, [Wave(0, 0, 0, 0, 0, steps)], 2.0)


def test_a_load_is_quiet_if_its_cu_issued_few_others_before_it() -> None:
    assert quiet(loads(QUIET_LOADS + 1, 4, 200), 300.0) == [200]
    assert quiet(loads(QUIET_LOADS + 2, 4, 200), 300.0) == []
    assert quiet(loads(QUIET_LOADS + 2, QUIET_CLOCKS, 200), 300.0) == [200]


def test_a_wait_that_did_not_wait_tells_that_a_load_was_early() -> None:
    """The wait's end is the latest clock at which the load can have come back."""
    early, late = loads(1, 4, 12), loads(1, 4, 12)
    late.waves[0].steps["clock"][1] += 500
    assert quiet(early, 300.0) == [12]
    assert quiet(late, 300.0) == []
