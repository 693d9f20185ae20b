"""A traced dispatch through the clock, which says when each instruction of each wave issues.

    for beside in replay(dispatch, kernel, parameters):
        beside.hardware, beside.model

The instructions of each wave, the SIMDs, and the clocks at which a CU's first workgroups begin are
the trace's. A later workgroup begins as many clocks behind the one before it as in the trace. All
else is the model's, with what `assumed.py` and `residence.py` assume.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.timing.hardware.assumed import facts, is_branch, steady_loop
from hk_backend.lab.timing.hardware.dispatch import Dispatch, Line, Wave

if TYPE_CHECKING:
    from hk_backend import _emulator

ALWAYS = (0, 1 << 62)
CLOCK_GHZ = 2.2
"""Clock of a traced MI350X, for traces that do not tell."""
Clocks = NDArray[np.int64]


@dataclass(frozen=True)
class Beside:
    """One wave: the clock at which each of its instructions issued, on hardware and by the model.

    Both count from the wave's first instruction on.
    """

    wave: Wave
    hardware: Clocks
    model: Clocks


def replay(
    dispatch: Dispatch, kernel: _emulator.Kernel, parameters: _emulator.TimingParameters
) -> Iterator[Beside]:
    """Replay the traced CU of each shader engine; yields the waves of one after the other."""
    for engine in dispatch.engines:
        yield from _compute_unit(dispatch, dispatch.workgroups(engine), kernel, parameters)


def _compute_unit(
    dispatch: Dispatch,
    workgroups: Sequence[Sequence[Wave]],
    kernel: _emulator.Kernel,
    parameters: _emulator.TimingParameters,
) -> Iterator[Beside]:
    """Replay one CU, whose places take one workgroup after another."""
    from hk_backend import _emulator

    listing = Listing.of(dispatch, kernel.entry)
    trace = _emulator.recorded_trace(
        kernel, [[listing.steps(wave) for wave in waves] for waves in workgroups]
    )
    starts = [min(map(first_clock, waves)) for waves in workgroups]
    queued, gaps = queues(workgroups)
    places = [
        [(wave.simd, first_clock(wave) - start) for wave in waves]
        for waves, start in zip(workgroups, starts, strict=True)
    ]
    time = _emulator.replay(
        trace,
        parameters,
        queued,
        [starts[place[0]] - min(starts) for place in queued],
        active=active_units(dispatch, parameters),
        clock_ghz=dispatch.clock_ghz or CLOCK_GHZ,
        events_within=ALWAYS,
        places=places,
        traced=True,
        gaps=gaps,
    )
    # the replay numbers workgroups in the order in which they start
    events = _by_wave(_emulator.wave_events(trace, time))
    for number, waves in enumerate(workgroups[each.trace] for each in time.workgroups):
        for index, wave in enumerate(waves):
            modelled = _issues(events[number, index], wave, dispatch.lines)
            yield Beside(wave, wave.issues - first_clock(wave), modelled - modelled[0])


def queues(workgroups: Sequence[Sequence[Wave]]) -> tuple[list[list[int]], list[int]]:
    """Workgroups by the place that they take one after another, and the clocks between two.

    A workgroup takes the place that has been free for longest. A place is free when the stores of
    its workgroup are done, which is where a wave ends on hardware.
    """
    places: list[list[int]] = []
    free: list[tuple[int, int]] = []
    gaps = [0] * len(workgroups)
    for number, waves in enumerate(workgroups):
        begin = min(map(first_clock, waves))
        if free and free[0][0] <= begin:
            end, place = heapq.heappop(free)
            gaps[number] = begin - end
            places[place].append(number)
        else:
            place = len(places)
            places.append([number])
        heapq.heappush(free, (max(wave.end for wave in waves), place))
    return places, gaps


def active_units(dispatch: Dispatch, parameters: _emulator.TimingParameters) -> int:
    """CUs that share the memory: every XCD has as many busy ones as the traced one."""
    units = int(parameters["compute_units"])
    if not dispatch.launch:
        return units
    return min(dispatch.launch.compute_units * int(parameters["xcds"]), units)


def first_clock(wave: Wave) -> int:
    """The clock at which a wave's first instruction could issue."""
    return int(wave.steps["clock"][0])


@dataclass(frozen=True)
class Listing:
    """Facts about each line of a dispatch's listing."""

    pcs: NDArray[np.int64]
    facts: NDArray[np.uint32]
    branches: NDArray[np.bool_]

    @classmethod
    def of(cls, dispatch: Dispatch, entry: int) -> Listing:
        """`entry`: byte offset of the assembled kernel."""
        lines = dispatch.lines
        first = next(line.pc for line in lines if not line.is_label)
        return cls(
            np.array([line.pc - first + entry for line in lines]),
            facts(lines, steady_loop(dispatch)),
            np.array([not line.is_label and is_branch(line) for line in lines]),
        )

    def steps(self, wave: Wave) -> NDArray[np.uint32]:
        """The wave's steps for the clock: [pc, taken, needed, shared] of each."""
        lines = wave.steps["line"]
        steps = np.zeros((len(lines), 4), np.uint32)
        steps[:, 0] = self.pcs[lines]
        steps[:, 1:] = self.facts[lines]
        jumped = np.append(lines[1:] != lines[:-1] + 1, False)
        steps[self.branches[lines], 1] = jumped[self.branches[lines]]
        return steps


def _by_wave(events: Any) -> dict[tuple[int, int], Any]:
    """Events of each wave, by workgroup and wave, in the order of time."""
    keys = events["workgroup"].astype(np.int64) << 16 | events["wave"]
    ordered = events[np.lexsort((events["start"], keys))]
    keys = ordered["workgroup"].astype(np.int64) << 16 | ordered["wave"]
    borders = np.flatnonzero(np.diff(keys)) + 1
    parts = np.split(ordered, borders)
    return {(int(part["workgroup"][0]), int(part["wave"][0])): part for part in parts}


def _issues(events: Any, wave: Wave, lines: Sequence[Line]) -> Clocks:
    """The clock at which each instruction issued. A barrier does once it lets the wave pass, as in
    a trace."""
    issued = events[events["waits"] == 0]
    clocks: Clocks = issued["start"].astype(np.int64)
    barrier = np.array(
        [line.mnemonic == "s_barrier" if not line.is_label else False for line in lines]
    )
    at = np.flatnonzero(barrier[wave.steps["line"]][:-1])
    waits = events[events["waits"] != 0]
    ends = waits["start"].astype(np.int64) + waits["clocks"].astype(np.int64)
    for step in at:  # the wait that begins behind the barrier's arrival belongs to it
        begin = clocks[step]
        own = (waits["start"] > begin) & (waits["start"] < clocks[step + 1]) & _at_barrier(waits)
        if own.any():
            clocks[step] = min(int(ends[own].max()), int(clocks[step + 1])) - 4
    return clocks


def _at_barrier(waits: Any) -> NDArray[np.bool_]:
    from hk_backend import _emulator

    found: NDArray[np.bool_] = waits["what"] == _emulator.stall_names().index("barrier")
    return found
