"""What the picture and the clocks by line come from: events of waves and units, and the loop."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from hk_backend import _emulator
from tests.emulator.assembly import needs_llvm
from tests.emulator.timing.programs import CLOCK, trace

pytestmark = needs_llvm

START = "v_mov_b32 v2, 0\n v_mov_b32 v3, 0\n v_mov_b32 v4, 0\n"
MATRIX = "v_mfma_f32_16x16x32_bf16 v[8:11], v[16:19], v[20:23], v[8:11]\n"
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


def test_a_wave_does_one_thing_at_a_time_from_its_start_to_its_end() -> None:
    traced, time = replayed(BODY)
    events = _emulator.wave_events(traced, time)
    for wave in range(8):
        own = np.sort(events[events["wave"] == wave], order="start")
        assert own["start"][0] == 0
        assert (own["start"][1:] == own["start"][:-1] + own["clocks"][:-1]).all()
        assert own["start"][-1] + own["clocks"][-1] <= time.clocks
    assert events["clocks"].sum() == time.workgroups[0].wave_clocks


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
        ("ds_read_b128 v[24:27], v3\n s_waitcnt lgkmcnt(0)\n", "wait lds", 100),
    ],
)
def test_a_lone_wave_waits_for_what_it_must(body: str, what: str, clocks: int) -> None:
    def spent(body: str) -> int:
        traced, time = replayed(body, waves=1)
        return by_activity(_emulator.wave_events(traced, time))[what]

    assert spent(body) - spent("") == clocks
