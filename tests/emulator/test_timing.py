"""The timing model: programs whose clocks can be counted by hand, the events that pictures and
clocks by line come from, and workgroups on the device."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hk_backend import _emulator
from tests.emulator.assembly import PROLOGUE, assemble, lines

CLOCK = 2.4  # GHz: of the bandwidths in bytes per clock


def trace(body: str, *, waves: int, **assembly: Any) -> _emulator.Trace:
    """A trace of one workgroup, without memory."""
    kernel = _emulator.CodeObject.load(assemble(PROLOGUE + body, **assembly)).kernel("k")
    machine = _emulator.Machine("gfx950")
    return machine.trace(kernel, [1], [64 * waves], struct.pack("<2Q", 0, 0), workgroups=range(1))


def replay(traced: _emulator.Trace) -> _emulator.CuTime:
    """Replays a trace on one CU from clock 0 on."""
    parameters = _emulator.TimingParameters("gfx950")
    return _emulator.replay(traced, parameters, [[0]], [0], 1, CLOCK)


FMA = "v_fma_f32 v2, v3, v4, v2\n"
START = lines("v_mov_b32 v{}, 0", 2, 3, 4)
MATRIX = "v_mfma_f32_16x16x32_bf16 v[8:11], v[16:19], v[20:23], v[8:11]\n"
ACCUMULATORS = lines("v_mov_b32 v{}, 0", *range(8, 24))


def by_wave(first: int, younger: str, older: str) -> str:
    """Waves from work-item `first` on execute `younger`, those before it `older`."""
    return f"""
      v_readfirstlane_b32 s8, v0
      s_nop 4
      s_cmp_lt_u32 s8, {first}
      s_cbranch_scc1 1f
      {younger}
      s_branch 2f
      1:
      {older}
      2:
    """


def test_the_wave_with_priority_is_first() -> None:
    """The younger of two waves on a SIMD ends first if it has priority."""
    body = by_wave(256, "s_setprio 3", "s_setprio 0") + FMA * 200
    traced = trace(START + body, waves=8)
    parameters = _emulator.TimingParameters("gfx950")
    time = _emulator.replay(traced, parameters, [[0]], [0], 1, 2.4, events_within=(0, 10**6))
    ends = {event["wave"]: event["start"] for event in _emulator.wave_events(traced, time)}
    assert min(ends[wave] for wave in range(4)) > max(ends[wave] for wave in range(4, 8)) + 400


@pytest.mark.parametrize(
    ("first", "expected"), [("matrix", 40 * 4 + 100 * 8), ("vector", 100 * 8 + 40 * 16)]
)
def test_matrix_and_vector_instructions_share_a_port(first: str, expected: int) -> None:
    """Two waves share a SIMD. One issues matrix instructions, which hold the port for 4 clocks and
    their unit for 16; the other's instructions hold the port for 8. Vector work of the older wave
    leaves the port to nobody."""
    matrix = MATRIX * 40
    exponentials = "v_exp_f32 v2, v3\n" * 100
    one, two = (matrix, exponentials) if first == "matrix" else (exponentials, matrix)

    def both(times: int) -> int:
        body = by_wave(256, two * times, one * times)
        return replay(trace(START + ACCUMULATORS + body, waves=8)).clocks

    assert both(2) - both(1) == pytest.approx(expected, abs=16)


@pytest.mark.parametrize("stride", [4, 8, 16])
def test_conflicts_cost_their_phases(stride: int) -> None:
    """Lanes 16 bytes apart read in 4 phases; `stride` times as far, in `stride` times as many."""

    def reads(step: int) -> str:
        address = f"v_mul_u32_u24 v2, {step}, v0\n v_and_b32 v2, 0xffff, v2\n"
        return (address + "ds_read_b128 v[4:7], v2\n" * 14) * 10

    fast = replay(trace(reads(16), waves=1, lds=65536))
    slow = replay(trace(reads(16 * stride), waves=1, lds=65536))
    assert fast.busy["lds"] == 140 * 4
    assert slow.busy["lds"] == stride * fast.busy["lds"]


def test_registers_and_lds_decide_how_many_workgroups_fit() -> None:
    parameters = _emulator.TimingParameters("gfx950")
    assert trace(START, waves=4, vgprs=128, accum_offset=128).resident(parameters) == 4
    assert trace(START, waves=4, vgprs=128, accum_offset=128, lds=65536).resident(parameters) == 2
    with pytest.raises(ValueError, match="no CU holds a workgroup of 8 waves with 512 registers"):
        trace(START, waves=8, vgprs=512, accum_offset=256).resident(parameters)


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="timing parameter 'lds'; valid: compute_units, xcds"):
        _emulator.TimingParameters("gfx950", {"lds": 1})
    with pytest.raises(ValueError, match=r"clock = 0.* more than 0"):
        _emulator.TimingParameters("gfx950", {"clock": 0})
    with pytest.raises(ValueError, match=r"l2_hits = 1.5.* 0 to 1"):
        _emulator.TimingParameters("gfx950", {"l2_hits": 1.5})
    assert _emulator.TimingParameters("gfx942")["compute_units"] == 304


# --- workgroups on the whole device ---------------------------------------------------------------


def schedule(lengths: list[float], slots: int = 1, **changes: float) -> _emulator.DeviceTime:
    """Schedules workgroups on two XCDs of two CUs each: 0 and 1, 2 and 3."""
    small = {"xcds": 2, "compute_units": 4, "workgroup_start": 7, **changes}
    return _emulator.schedule(lengths, slots, _emulator.TimingParameters("gfx950", small))


def test_workgroups_go_round_the_xcds_to_the_unit_that_is_free_first() -> None:
    time = schedule([10, 10, 30, 30, 10, 10, 10, 10])
    assert time.places.tolist() == [0, 2, 1, 3, 0, 2, 0, 2]
    assert time.clocks == 10 + 7 + 10 + 7 + 10
    assert time.busy_share == pytest.approx(120 / (4 * time.clocks))


BODY = f"""
  s_mov_b32 s8, 0
  1:
  {"v_fma_f32 v2, v3, v4, v2" + chr(10)}
  {MATRIX}
  ds_read_b128 v[24:27], v3
  s_waitcnt lgkmcnt(0)
  s_nop 7
  s_barrier
  s_add_u32 s8, s8, 1
  s_cmp_lt_u32 s8, 20
  s_cbranch_scc1 1b
"""
WHOLE = (0, 1 << 40)


def replayed(
    body: str, within: tuple[int, int] = WHOLE, waves: int = 8
) -> tuple[_emulator.Trace, _emulator.CuTime]:
    traced = trace(START + body, waves=waves, lds=65536)
    parameters = _emulator.TimingParameters("gfx950")
    return traced, _emulator.replay(
        traced, parameters, [[0]], [0], 1, CLOCK, traced.loop, events_within=within
    )


def by_activity(events: NDArray) -> Counter[str]:  # type: ignore[type-arg]
    units, stalls = _emulator.unit_names(), _emulator.stall_names()
    found: Counter[str] = Counter()
    for event in events:
        what = event["what"]
        name = f"wait {stalls[what]}" if event["waits"] else f"issue {units[what]}"
        found[name] += int(event["clocks"])
    return found


def test_clocks_by_instruction_are_those_of_the_events() -> None:
    traced, time = replayed(BODY)
    times = _emulator.instruction_times(traced, time).values()
    expected: Counter[str] = Counter()
    for unit, executed, issue, stalls in times:
        assert issue == 4 * executed
        expected[f"issue {unit}"] += issue
        expected.update({f"wait {name}": clocks for name, clocks in stalls.items()})
    assert by_activity(_emulator.wave_events(traced, time)) == expected
    assert sum(expected.values()) == time.workgroups[0].wave_clocks


def test_units_work_as_long_as_they_are_busy() -> None:
    _, time = replayed(BODY)
    events, names = _emulator.unit_events(time), _emulator.unit_names()
    for unit, simds in (("vector", 4), ("matrix", 4), ("lds", 1)):
        own = events[events["unit"] == names.index(unit)]
        assert own["clocks"].sum() == simds * time.busy[unit] > 0
        for simd in range(simds):
            mine = np.sort(own[own["simd"] == simd], order="start")
            assert (mine["start"][1:] >= mine["start"][:-1] + mine["clocks"][:-1]).all()


@pytest.mark.parametrize(
    ("body", "what", "clocks"),
    [
        ("s_nop 15\n" * 10, "wait itself", 10 * 60),
        ("v_fma_f32 v2, v3, v4, v2\n" * 10, "issue vector", 10 * 4),
        (MATRIX * 10, "wait matrix busy", 9 * 12),  # a chain is as fast as the unit
        (MATRIX + "v_mov_b32 v5, v8\n", "wait matrix result", 16 + 16 - 4),
        ("ds_read_b128 v[24:27], v3\n s_waitcnt lgkmcnt(0)\n", "wait lds", 48),
    ],
)
def test_a_lone_wave_waits_for_what_it_must(body: str, what: str, clocks: int) -> None:
    def spent(body: str) -> int:
        traced, time = replayed(body, waves=1)
        return by_activity(_emulator.wave_events(traced, time))[what]

    assert spent(body) - spent("") == clocks
