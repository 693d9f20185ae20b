"""From a launch to clocks: sampled workgroups are traced, replayed on a model of one CU, and dealt
over the device.

    launch = workloads.attention(entry, ...)
    modelled = Model("gfx950").time(launch)
    modelled.microseconds, modelled.flops_per_second

The replay and the schedule are csrc/emulator/timing; docs/timing.md says what they leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hk_backend import _emulator

MOST_SAMPLES = 12
"""Lengths of workgroups that are traced; those in between are interpolated."""
Loop = tuple[int, int]
"""Byte offsets in .text: [first, second)."""


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, and what a sample of its workgroups stands for."""

    machine: _emulator.Machine
    kernel: _emulator.Kernel
    grid: Sequence[int]
    block: int
    arguments: bytes
    dynamic_lds: int
    work: NDArray[np.float64]
    """Per workgroup in the order of the grid: what it has to do, in any unit. Workgroups of equal
    work take equally long, and in between it is linear."""
    samples: Sequence[int]
    """Workgroups to trace: several that share operands, and the least and the most work."""
    flops: float = 0.0
    """Useful ones of the whole launch."""
    bytes: float = 0.0
    """That it must at least move to or from memory."""
    loop: Loop = (0, 0)
    keep_alive: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Modelled:
    """What the model says of a launch. Clocks are the CU's, shares of 1."""

    arch: str
    microseconds: float
    clock_ghz: float
    clocks: float
    """Until the last workgroup ends."""
    flops: float
    bytes: float
    resident: int
    """Workgroups on a CU at once."""
    busy_share: float
    """Of the slots' clocks in which a workgroup runs; the rest is the tail."""
    unit_share: Mapping[str, float]
    """Of `clocks`: in which each unit works, on the average CU."""
    lengths: Mapping[float, float]
    """Clocks of a workgroup, by its work."""
    times: Sequence[_emulator.CuTime] = field(repr=False)

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.microseconds * 1e6

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.microseconds * 1e6


@dataclass(frozen=True)
class Traced:
    """A launch whose samples were executed: what can be replayed with any parameters."""

    launch: Launch
    trace: _emulator.Trace

    @cached_property
    def work(self) -> list[float]:
        """Of each traced workgroup."""
        return [float(self.launch.work[number]) for number in self.trace.workgroups]


def trace(launch: Launch, threads: int = 2) -> Traced:
    """Execute the launch's samples. Raises `RuntimeError` for a kernel that cannot go on."""
    recorded = launch.machine.trace(
        launch.kernel,
        list(launch.grid),
        [launch.block],
        launch.arguments,
        workgroups=list(launch.samples),
        dynamic_lds=launch.dynamic_lds,
        threads=threads,
    )
    return Traced(launch, recorded)


def time(traced: Traced, changes: Mapping[str, float] | None = None) -> Modelled:
    """Replay a traced launch with the arch's parameters, `changes` applied.

    Raises `ValueError` for a parameter that there is not, or a value that is not valid.
    """
    from hk_backend import _emulator

    arch = traced.launch.machine.arch
    parameters = _emulator.TimingParameters(arch, dict(changes or {}))
    resident = traced.trace.resident(parameters)
    workgroups = len(traced.launch.work)
    active = min(int(parameters["compute_units"]), -(-workgroups // resident))
    resident = min(resident, -(-workgroups // active))

    clock = parameters["clock"] * parameters["clock_loaded"]
    for _ in range(3):  # the clock depends on the load, bandwidths in bytes per clock on the clock
        runs = _run_each(traced, parameters, resident, active, clock)
        lengths = {work: run.length for work, run in sorted(runs.items())}
        every = np.interp(traced.launch.work, list(lengths), list(lengths.values()))
        schedule = _emulator.schedule(every, resident, parameters)
        # each CU may be ahead of its share of the memory for a while, all of them together never
        busy = {unit: total / active for unit, total in _totals(runs, traced.launch.work).items()}
        clocks = max(schedule.clocks, busy["hbm"])
        load = busy["matrix"] / clocks
        now = parameters["clock"] * np.interp(
            load, [0, 1], [parameters["clock_idle"], parameters["clock_loaded"]]
        )
        if abs(now - clock) < 1e-3 * clock:
            break
        clock = now
    return Modelled(
        arch=arch,
        microseconds=clocks / clock / 1e3 + parameters["launch"],
        clock_ghz=clock,
        clocks=clocks,
        flops=traced.launch.flops,
        bytes=traced.launch.bytes,
        resident=resident,
        busy_share=schedule.busy_share,
        unit_share={unit: clocks_busy / clocks for unit, clocks_busy in busy.items()},
        lengths=lengths,
        times=[run.time for run in runs.values()],
    )


@dataclass(frozen=True)
class _Run:
    """Workgroups of one length on a CU: clocks of one of them, beside others of its kind."""

    length: float
    busy: Mapping[str, float]  # clocks of each unit for one workgroup
    time: _emulator.CuTime


def _run_each(
    traced: Traced, parameters: Any, resident: int, active: int, clock: float
) -> dict[float, _Run]:
    runs: dict[float, _Run] = {}
    for number, work in enumerate(traced.work):
        if work in runs:
            continue
        runs[work] = _run(traced, number, parameters, resident, active, clock)
    return runs


def _run(
    traced: Traced, number: int, parameters: Any, resident: int, active: int, clock: float
) -> _Run:
    """With one slot a workgroup by itself; with several, each slot runs it again and again, out of
    step with the others as after a while on a GPU, and only what lies in the middle counts."""
    from hk_backend import _emulator

    def replay(slots: list[list[int]], starts: list[int]) -> _emulator.CuTime:
        return _emulator.replay(
            traced.trace, parameters, slots, starts, active, clock, traced.launch.loop
        )

    alone = replay([[number]], [0])
    if resident == 1:
        return _Run(float(alone.clocks), alone.busy, alone)
    step = int(alone.clocks) // resident
    repeats = 3
    time = replay(
        [[number] * repeats for _ in range(resident)], [slot * step for slot in range(resident)]
    )
    middle = [w.end - w.start for i, w in enumerate(time.workgroups) if _is_middle(time, w)]
    count = len(time.workgroups)
    return _Run(
        float(np.mean(middle)), {unit: busy / count for unit, busy in time.busy.items()}, time
    )


def _is_middle(time: _emulator.CuTime, workgroup: Any) -> bool:
    """Neither the first nor the last of its slot."""
    same = [w.start for w in time.workgroups if w.slot == workgroup.slot]
    return bool(min(same) < workgroup.start < max(same))


def _totals(runs: Mapping[float, _Run], work: NDArray[np.float64]) -> dict[str, float]:
    """Clocks of each unit for the whole launch, all CUs together."""
    known = sorted(runs)
    return {
        unit: float(np.interp(work, known, [runs[w].busy[unit] for w in known]).sum())
        for unit in runs[known[0]].busy
    }


def spread(work: NDArray[np.float64], most: int = MOST_SAMPLES) -> list[int]:
    """The first workgroup of each of at most `most` amounts of work: of the least two (a workgroup
    may have nothing to do at all), the most, and some in between."""
    values, first = np.unique(work, return_index=True)
    chosen = np.linspace(1, len(values) - 1, min(most, len(values))).round().astype(int)
    return [int(first[i]) for i in sorted({0, *chosen.tolist()} & set(range(len(values))))]
