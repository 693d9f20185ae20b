"""Replays workgroups on one CU: one kind beside others of its kind, or a given set of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.lab.timing.launch import Traced

REPEATS = 3
"""Successive workgroups in each slot; only those in the middle count."""

Units = dict[str, float]
"""Clocks in which each unit works, by its name."""


@dataclass(frozen=True)
class Run:
    """Clocks of one workgroup that runs on a CU beside others of its kind."""

    length: float
    busy: Mapping[str, float]  # clocks of each unit for one workgroup
    time: _emulator.CuTime


def run_each(
    traced: Traced, parameters: Any, resident: int, active: int, clock: float
) -> dict[float, Run]:
    """Replay one traced workgroup of each amount of work; returns the runs by amount of work."""
    runs: dict[float, Run] = {}
    for number, work in enumerate(traced.work):
        if work in runs:
            continue
        runs[work] = run_one(traced, number, parameters, resident, active, clock)
    return runs


def run_one(
    traced: Traced,
    number: int,
    parameters: Any,
    resident: int,
    active: int,
    clock: float,
    events_within: tuple[int, int] = (0, 0),
) -> Run:
    """Replay the traced workgroup `number` on one CU.

    With one slot the workgroup runs by itself. With several, each slot repeats it, out of step with
    the others as on a GPU after a while; only the repeats in the middle count.

    Args:
        events_within: first and last clock between which events of waves and units are kept.
    """
    from hk_backend import _emulator

    def replay(slots: list[list[int]], starts: list[int]) -> _emulator.CuTime:
        return _emulator.replay(
            traced.trace, parameters, slots, starts, active, clock, traced.loop, events_within
        )

    alone = replay([[number]], [0])
    if resident == 1:
        return Run(float(alone.clocks), alone.busy, alone)
    step = int(alone.clocks) // resident
    time = replay(
        [[number] * REPEATS for _ in range(resident)], [slot * step for slot in range(resident)]
    )
    lengths = [w.end - w.start for w in counted(time)]
    count = len(time.workgroups)
    return Run(
        float(np.mean(lengths)), {unit: busy / count for unit, busy in time.busy.items()}, time
    )


def counted(time: _emulator.CuTime) -> list[_emulator.WorkgroupTime]:
    """The workgroups that represent a launch: all but the first and the last of each slot.

    With one workgroup in each slot, these are all workgroups.
    """
    starts: dict[int, list[int]] = {}
    for workgroup in time.workgroups:
        starts.setdefault(workgroup.slot, []).append(workgroup.start)
    middle = [w for w in time.workgroups if min(starts[w.slot]) < w.start < max(starts[w.slot])]
    return middle or time.workgroups


def totals(runs: Mapping[float, Run], work: NDArray[np.float64]) -> Units:
    """Clocks in which each unit works in the whole launch, summed over all CUs."""
    known = sorted(runs)
    return {
        unit: float(np.interp(work, known, [runs[w].busy[unit] for w in known]).sum())
        for unit in runs[known[0]].busy
    }


def whole_device(
    traced: Traced, places: NDArray[np.uint32], slots: int, parameters: Any, clock: float
) -> tuple[float, Units]:
    """Clocks until the last CU is done, and clocks of each unit summed over all CUs.

    Replays every different set of workgroups that `_emulator.schedule` gave a CU. The traced
    workgroup with the nearest amount of work stands in for one that was not traced.
    """
    from hk_backend import _emulator

    known = np.array(traced.work)
    nearest = [int(np.abs(known - work).argmin()) for work in traced.launch.work]
    units: dict[int, list[list[int]]] = {}
    for number, place in zip(nearest, places.tolist(), strict=True):
        units.setdefault(place // slots, [[] for _ in range(slots)])[place % slots].append(number)
    sets = Counter(tuple(map(tuple, own)) for own in units.values())
    clocks, busy = 0.0, Counter[str]()
    for own, count in sets.items():
        time = _emulator.replay(traced.trace, parameters, own, [0] * slots, len(units), clock)
        clocks = max(clocks, float(time.clocks))
        busy.update({unit: count * each for unit, each in time.busy.items()})
    return clocks, dict(busy)
