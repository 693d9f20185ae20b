"""The timing of memory: the order in which loads return, runs of misses, and replays of traces.

Each program runs as a recorded trace, since a recording says what each load finds where.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.toolchain.elf import Elf
from tests.emulator.assembly import assemble

SECTORS = 16
"""Sectors of a load of 16 bytes by each of 64 lanes, which takes the path for 16 clocks."""
HIT, OWN = (SECTORS, SECTORS, SECTORS), (SECTORS, SECTORS, 0)
"""A load of what other workgroups read as well, and of what no other does."""
LOAD = "buffer_load_dwordx4 v[20:23], v10, s[8:11], 0 offen\n s_waitcnt vmcnt(0)\n"
SCALAR = "s_load_dword s4, s[0:1], 0x0\n s_waitcnt lgkmcnt(0)\n"


def ends(
    program: str,
    loads: Sequence[Sequence[tuple[int, int, int]]],
    *,
    lines: Sequence[int] = (),
    traced: bool = False,
    arch: str = "gfx950",
    **changes: float,
) -> list[list[int]]:
    """The clocks at which each wave's waits end, if its loads find these facts.

    Wave n is on SIMD n and begins 32 n clocks after the first. `lines`: those of the scalar cache
    that each wave's scalar loads read; else they read one.
    """
    data = assemble(program)
    kernel = _emulator.CodeObject.load(data).kernel("k")
    steps = _emulator.disassemble(Elf(data).symbol_bytes("k"), "gfx950")
    waves = []
    for own in loads:
        facts, scalars = iter(own), iter(lines)
        rows = [(kernel.entry + pc, *(next(facts) if "buffer" in text else
                                      (next(scalars, 0) if "s_load" in text else 0, 0, 0)))
                for pc, text in steps]  # fmt: skip
        waves.append(np.array(rows, np.uint32))
    trace = _emulator.recorded_trace(kernel, [waves])
    parameters = _emulator.TimingParameters(arch, dict(changes))
    places = [[(simd, 32 * simd) for simd in range(len(waves))]]
    time = _emulator.replay(
        trace,
        parameters,
        [[0]],
        [0],
        1,
        2.4,
        events_within=(0, 1 << 40),
        places=places,
        traced=traced,
    )
    events = _emulator.wave_events(trace, time)
    control = _emulator.unit_names().index("control")
    issued = events[(events["waits"] == 0) & (events["what"] == control)]
    # the last instruction of control is s_endpgm
    return [sorted(issued["start"][issued["wave"] == wave].tolist())[:-1]
            for wave in range(len(waves))]  # fmt: skip


@pytest.mark.parametrize("in_order", [1, 0])
def test_a_hit_waits_for_another_waves_miss_before_it(in_order: int) -> None:
    (miss,), (hit,) = ends(LOAD, [[OWN], [HIT]], loads_in_order=in_order, l2_hits=1)
    assert (hit >= miss) == bool(in_order)


def test_a_hit_before_a_miss_does_not_wait() -> None:
    (hit,), (miss,) = ends(LOAD, [[HIT], [OWN]], l2_hits=1)
    (alone,) = ends(LOAD, [[HIT]], l2_hits=1)[0]
    assert hit == alone < miss


@pytest.mark.parametrize(("run", "expected"), [(1, 1), (4 * 1024, 4), (8 * 1024, 8)])
def test_misses_come_in_runs(run: int, expected: int) -> None:
    """Half of the loads miss, whatever the run; a run lasts until its misses are used up."""
    count = 64
    ended = ends(LOAD * count, [[HIT] * count], l2_hits=0.5, l2_miss_run=run)[0]
    latency = np.diff([0, *ended])
    missed = latency > latency.min() + 100
    assert missed.sum() == pytest.approx(count / 2, abs=expected)
    first = int(np.flatnonzero(missed)[0])
    assert missed[first : first + expected].all()
    assert not missed[:first].any()
    assert first + 1 >= 2 * expected - 1


def test_a_launchs_first_scalar_load_is_cold() -> None:
    """All of a CU's waves wait for the same line; who comes later hits."""
    own = _emulator.TimingParameters("gfx950")
    program = SCALAR * 2
    (first, second), (other, _) = ends(program, [[], []], traced=True)
    assert first == own["scalar_cold"]
    assert second - first == pytest.approx(own["scalar_latency"], abs=8)
    assert other == pytest.approx(first, abs=4)
    warm = ends(program, [[]])[0]
    assert warm[0] == own["scalar_latency"]


def test_a_later_line_of_the_scalar_cache_misses_once() -> None:
    own = _emulator.TimingParameters("gfx950")
    ended = ends(SCALAR * 4, [[]], lines=(3, 5, 3, 5), traced=True)[0]
    waits = np.diff([0, *ended]) - 4
    expected = [own["scalar_cold"] - 4, own["scalar_miss"], own["scalar_latency"]]
    assert waits[:3] == pytest.approx(expected, abs=8)
    assert waits[3] == pytest.approx(own["scalar_latency"], abs=8)


BURST = "buffer_load_dwordx4 v[20:23], v10, s[8:11], 0 offen\n" * 4 + "s_nop 0\n"
"""Loads that nobody waits for: the marker behind them issues when all have."""
LOAD_BYTES = 1024


def test_waves_stall_while_all_that_may_is_in_flight() -> None:
    """The third load issues when the first is done, and the fourth when the second is."""
    own = _emulator.TimingParameters("gfx950")
    few = {"vector_memory_in_flight": 2.0 * LOAD_BYTES, "l2_hits": 1.0}
    (free,), (limited,), (untraced,) = (
        ends(BURST, [[OWN] * 4], traced=traced, **changes)[0]
        for traced, changes in ((True, {}), (True, few), (False, few))
    )
    assert free == untraced < own["hbm_latency"] < limited


def test_waves_get_room_in_the_order_in_which_they_asked() -> None:
    """Without turns the wave on the first SIMD would always be the first to look."""
    few = {"vector_memory_in_flight": 1.0 * LOAD_BYTES}
    first, second = ends(LOAD.replace("s_waitcnt vmcnt(0)", "s_nop 0") * 6, [[OWN] * 6] * 2,
                         traced=True, **few)  # fmt: skip
    merged = sorted([(clock, 0) for clock in first] + [(clock, 1) for clock in second])
    turns = [wave for _, wave in merged]
    assert turns == [0, *[0, 1] * 5, 1], "the first wave asks twice before the second begins"


def test_a_traced_launch_begins_with_a_run_of_misses() -> None:
    count = 24
    latencies = {traced: np.diff([0, *ends(LOAD * count, [[HIT] * count], traced=traced)[0]])
                 for traced in (True, False)}  # fmt: skip
    run = int(_emulator.TimingParameters("gfx950")["l2_miss_run"]) // LOAD_BYTES
    missed = {traced: own > own.min() + 100 for traced, own in latencies.items()}
    assert missed[True][:run].all()
    assert not missed[True][run + 1 :].any()
    assert not missed[False].any()


@pytest.mark.parametrize("traced", [True, False])
def test_a_workgroup_waits_for_the_stores_of_the_one_before_it(traced: bool) -> None:
    data = assemble("buffer_store_dwordx4 v[20:23], v10, s[8:11], 0 offen")
    kernel = _emulator.CodeObject.load(data).kernel("k")
    steps = _emulator.disassemble(Elf(data).symbol_bytes("k"), "gfx950")
    rows = [(kernel.entry + pc, *(OWN if "store" in text else (0, 0, 0))) for pc, text in steps]
    trace = _emulator.recorded_trace(kernel, [[np.array(rows, np.uint32)]] * 2)
    gap = 100
    time = _emulator.replay(
        trace, _emulator.TimingParameters("gfx950"), [[0, 1]], [0], 1, 2.4,
        traced=traced, gaps=[0, gap],
    )  # fmt: skip
    first, second = time.workgroups
    done = first.end + gap
    assert (second.start > done + 100) == traced
    assert second.start >= done - 4


def clocks(arch: str, **changes: float) -> list[list[int]]:
    return ends(LOAD * 8, [[OWN, HIT] * 4, [HIT] * 8], arch=arch, **changes)


def test_another_gpu_has_none_of_it() -> None:
    """Nobody traced a gfx942: its loads return in their wave's order, its misses one by one."""
    same = clocks("gfx942", loads_in_order=0, l2_miss_run=1)
    assert clocks("gfx942") == same != clocks("gfx942", loads_in_order=1)
