"""Details of one workgroup: where the clocks of its waves go."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hk_backend.lab.timing.compute_unit import counted, run_one

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.lab.timing.launch import Loop, Traced
    from hk_backend.lab.timing.model import Modelled

LANES = 64
NO_LINE = "(no line)"
"""Name for instructions that the compiler assigned to no source line."""


@dataclass(frozen=True)
class Clocks:
    """Clocks of the average wave, the largest first.

    Args:
        issue: clocks of issuing, by the unit that takes the instruction.
        stalls: clocks of waiting, by the reason.
    """

    issue: Mapping[str, float]
    stalls: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.issue.values()) + sum(self.stalls.values())


@dataclass(frozen=True)
class Phases:
    """Clocks of a workgroup before its loop, in its loop, and after its loop."""

    before: float
    loop: float
    after: float
    iterations: float
    """Number of iterations of the average wave."""


@dataclass(frozen=True)
class Workgroup:
    """The traced workgroup with the most work, beside others of its kind if a CU holds several."""

    trace: int
    """Index of the workgroup in the trace."""
    number: int
    """Index of the workgroup in the grid."""
    waves: int
    clocks: float
    """Clocks until the last wave of the workgroup ends."""
    wave_clocks: Clocks
    lines: Mapping[str, Clocks]
    """Clocks of the average wave by source line (file:line), the largest first."""
    phases: Phases | None
    """Clocks before, in and after the loop; None: the kernel has no loop."""
    time: _emulator.CuTime = field(repr=False)

    @property
    def matrix_flops_per_clock(self) -> float:
        """FLOPs per clock of a CU always busy with these matrix instructions; 0: there are none."""
        busy = self.time.busy["matrix"]
        return self.time.matrix_flops / busy if busy else 0.0


def longest(traced: Traced, modelled: Modelled) -> Workgroup:
    """The launch's workgroup with the most work, replayed with `modelled`'s parameters."""
    from hk_backend import _emulator

    trace = traced.work.index(max(traced.work))
    run = run_one(
        traced, trace, modelled.charged, modelled.resident, modelled.active, modelled.clock_ghz
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
    """The sum over instructions, times `share`."""
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
