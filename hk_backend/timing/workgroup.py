"""One workgroup in detail: where the clocks of its waves go."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hk_backend.timing.compute_unit import counted, run_one

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.timing.launch import Loop, Traced
    from hk_backend.timing.model import Modelled

LANES = 64
NO_LINE = "(no line)"
"""What the compiler wrote for no line of the source."""


@dataclass(frozen=True)
class Clocks:
    """Of the average wave, the most first: issuing, by the unit that takes the instruction, and
    waiting, by why."""

    issue: Mapping[str, float]
    stalls: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.issue.values()) + sum(self.stalls.values())


@dataclass(frozen=True)
class Phases:
    """Clocks of a workgroup before its loop's first instruction, up to the last, and after it."""

    before: float
    loop: float
    after: float
    iterations: float
    """Of the average wave."""


@dataclass(frozen=True)
class Workgroup:
    """The one with most to do of those that were traced, beside others of its kind if a CU holds
    several."""

    trace: int
    """Its index in the trace."""
    number: int
    """In the grid."""
    waves: int
    clocks: float
    """Until its last wave ends."""
    wave_clocks: Clocks
    lines: Mapping[str, Clocks]
    """The same by file:line, the most first."""
    phases: Phases | None
    """None without a loop."""
    time: _emulator.CuTime = field(repr=False)

    @property
    def matrix_flops_per_clock(self) -> float:
        """Of a CU whose matrix units are always busy with these instructions; 0: it has none."""
        busy = self.time.busy["matrix"]
        return self.time.matrix_flops / busy if busy else 0.0


def longest(traced: Traced, modelled: Modelled) -> Workgroup:
    """Of a launch, with the parameters and the clock of `modelled`."""
    from hk_backend import _emulator

    trace = traced.work.index(max(traced.work))
    run = run_one(
        traced, trace, modelled.parameters, modelled.resident, modelled.active, modelled.clock_ghz
    )
    waves = -(-traced.launch.block // LANES)
    share = 1 / (waves * len(run.time.workgroups))
    times = _emulator.instruction_times(traced.trace, run.time)
    return Workgroup(
        trace=trace,
        number=traced.trace.workgroups[trace],
        waves=waves,
        clocks=run.length,
        wave_clocks=_clocks(times.values(), share),
        lines=_by_line(times, traced.launch.kernel.lines, share),
        phases=_phases(run.time, times, traced.loop, share),
        time=run.time,
    )


def _clocks(times: Iterable[_emulator.InstructionTime], share: float) -> Clocks:
    """The sum, times `share`."""
    issue, stalls = Counter[str](), Counter[str]()
    for unit, _, issued, stalled in times:
        issue[unit] += issued
        stalls.update(stalled)
    return Clocks(
        {unit: clocks * share for unit, clocks in issue.most_common()},
        {stall: clocks * share for stall, clocks in stalls.most_common()},
    )


def _by_line(
    times: Mapping[int, _emulator.InstructionTime], lines: Mapping[int, str], share: float
) -> dict[str, Clocks]:
    by_line: dict[str, list[_emulator.InstructionTime]] = {}
    for pc, time in times.items():
        line = posixpath.normpath(lines[pc]) if pc in lines else NO_LINE
        by_line.setdefault(line, []).append(time)
    found = {line: _clocks(own, share) for line, own in by_line.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1].total))


def _phases(
    time: _emulator.CuTime, times: Mapping[int, _emulator.InstructionTime], loop: Loop, share: float
) -> Phases | None:
    looping = [w for w in counted(time) if w.loop_end]
    if not looping:
        return None
    mean = 1 / len(looping)
    return Phases(
        before=mean * sum(w.loop_start - w.start for w in looping),
        loop=mean * sum(w.loop_end - w.loop_start for w in looping),
        after=mean * sum(w.end - w.loop_end for w in looping),
        iterations=times[loop[0]][1] * share,
    )
