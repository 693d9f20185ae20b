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

from hk_backend.timing.compute_unit import run_each, totals, whole_device

if TYPE_CHECKING:
    from hk_backend import _emulator

MOST_SAMPLES = 20
"""Lengths of workgroups that are traced; those in between are interpolated."""
FEW_ROUNDS = 4
"""Of workgroups over the device, up to which every CU is replayed with the ones that it gets."""

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
    keep_alive: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Modelled:
    """What the model says of a launch. Clocks are the CU's, shares of 1."""

    arch: str
    microseconds: float
    """Of a launch by itself."""
    stream_microseconds: float
    """In a stream, after a kernel whose results it needs."""
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
    active: int
    """CUs that have workgroups."""
    parameters: _emulator.TimingParameters = field(repr=False)

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

    @cached_property
    def loop(self) -> Loop:
        """The one that most instructions are executed in; (0, 0): none."""
        return self.trace.loop


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
    workgroups, units = len(traced.launch.work), int(parameters["compute_units"])
    active = min(units, workgroups)
    resident = min(resident, -(-workgroups // units))
    # with few workgroups it matters which ones share a CU
    few = resident > 1 and workgroups <= FEW_ROUNDS * units * resident

    clock = parameters["clock"] * parameters["clock_loaded"]
    for _ in range(3):  # the clock depends on the load, bandwidths in bytes per clock on the clock
        runs = run_each(traced, parameters, resident, active, clock)
        lengths = {work: run.length for work, run in sorted(runs.items())}
        every = np.interp(traced.launch.work, list(lengths), list(lengths.values()))
        schedule = _emulator.schedule(every, resident, parameters)
        # each CU may be ahead of its share of the memory for a while, all of them together never
        last, all_busy = (
            whole_device(traced, schedule.places, resident, parameters, clock)
            if few
            else (schedule.clocks, totals(runs, traced.launch.work))
        )
        busy = {unit: total / units for unit, total in all_busy.items()}
        clocks = max(last, busy["hbm"])
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
        stream_microseconds=clocks / clock / 1e3 + parameters["dependent_gap"],
        clock_ghz=clock,
        clocks=clocks,
        flops=traced.launch.flops,
        bytes=traced.launch.bytes,
        resident=resident,
        busy_share=schedule.busy_share,
        unit_share={unit: clocks_busy / clocks for unit, clocks_busy in busy.items()},
        lengths=lengths,
        times=[run.time for run in runs.values()],
        active=active,
        parameters=parameters,
    )


def spread(work: NDArray[np.float64], most: int = MOST_SAMPLES) -> list[int]:
    """The first workgroup of each of at most `most` amounts of work: of the least two (a workgroup
    may have nothing to do at all), the most, and some in between."""
    values, first = np.unique(work, return_index=True)
    chosen = np.linspace(1, len(values) - 1, min(most, len(values))).round().astype(int)
    return [int(first[i]) for i in sorted({0, *chosen.tolist()} & set(range(len(values))))]
