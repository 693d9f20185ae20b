"""Models the time of a traced launch.

The workgroups are replayed on a model of one CU and dealt over the device.

    traced = trace(workloads.attention(entry, ...))
    modelled = time(traced)
    modelled.microseconds, modelled.flops_per_second

The replay and the schedule are csrc/emulator/timing; docs/timing.md says what they leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hk_backend.lab.timing.compute_unit import run_each, totals, whole_device
from hk_backend.lab.timing.infinity_cache import with_write_backs
from hk_backend.lab.timing.l2 import hit_rate
from hk_backend.lab.timing.launch import Traced

if TYPE_CHECKING:
    from hk_backend import _emulator

FEW_ROUNDS = 4
"""Up to this many rounds of workgroups over the device, every CU is replayed with its own ones."""


@dataclass(frozen=True)
class Modelled:
    """A launch's figures by the timing model. Clocks are the CU's; shares run from 0 to 1."""

    arch: str
    microseconds: float
    """Time of the launch when nothing runs before it."""
    stream_microseconds: float
    """Time of the launch in a stream, after a kernel whose results it needs."""
    clock_ghz: float
    clocks: float
    """Clocks until the last workgroup ends."""
    flops: float
    bytes: float
    resident: int
    """Number of workgroups on a CU at once."""
    busy_share: float
    """Share of the CUs' places and clocks in which a workgroup runs; the rest is the tail."""
    unit_share: Mapping[str, float]
    """Share of `clocks` in which each unit of the average CU works."""
    lengths: Mapping[float, float]
    """Clocks of one workgroup, by its amount of work."""
    times: Sequence[_emulator.CuTime] = field(repr=False)
    active: int
    """Number of CUs that have workgroups."""
    parameters: _emulator.TimingParameters = field(repr=False)
    charged: _emulator.TimingParameters = field(repr=False)
    """The parameters of the replay, with this launch's hits of the L2 and lines it displaces."""

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.microseconds * 1e6

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.microseconds * 1e6


def time(traced: Traced, changes: Mapping[str, float] | None = None) -> Modelled:
    """Replay a traced launch with the arch's parameters, `changes` applied.

    Raises `ValueError` for an unknown parameter or an invalid value.
    """
    from hk_backend import _emulator

    arch = traced.launch.machine.arch
    parameters = _emulator.TimingParameters(arch, dict(changes or {}))
    resident = traced.trace.resident(parameters)
    workgroups, units = len(traced.launch.work), int(parameters["compute_units"])
    active = min(units, workgroups)
    resident = min(resident, -(-workgroups // units))
    own = dict(with_write_backs(traced, parameters))
    if traced.launch.operands is not None and "l2_hits" not in (changes or {}):
        own["l2_hits"] = hit_rate(traced.launch.operands, resident, parameters)
    charged = _emulator.TimingParameters(arch, {**(changes or {}), **own})
    # with few workgroups it matters which ones share a CU
    few = resident > 1 and workgroups <= FEW_ROUNDS * units * resident

    clock = parameters["clock"] * parameters["clock_loaded"]
    for _ in range(3):  # the clock depends on the load, and bytes per clock depend on the clock
        runs = run_each(traced, charged, resident, active, clock)
        lengths = {work: run.length for work, run in sorted(runs.items())}
        every = np.interp(traced.launch.work, list(lengths), list(lengths.values()))
        schedule = _emulator.schedule(every, resident, parameters)
        # one CU may exceed its share of the memory's rate for a while; all CUs together never do
        last, all_busy = (
            whole_device(traced, schedule.places, resident, charged, clock)
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
        charged=charged,
    )
