"""The highest rates that a launch could reach, and what keeps it below them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hk_backend.lab.timing.busiest import launch_share, units
from hk_backend.lab.timing.model import Modelled
from hk_backend.lab.timing.workgroup import Clocks, Workgroup

Kind = Literal["unit", "latency", "issue", "tail", "launch"]
QUEUES = ("matrix busy", "vector busy", "lds busy", "memory busy")
"""Stalls because a unit is busy; all other stalls wait for a result or for another wave."""
ISSUE = ("other wave", "itself")
"""Stalls until the wave may issue: the unit takes another wave's instruction, or the wave's
previous instruction is not done."""
BUSY = 0.6
"""Share of the launch's clocks from which on a busy unit counts as what bounds the launch."""


@dataclass(frozen=True)
class Limits:
    """Highest rates of the whole device."""

    peak_flops: float
    """FLOPs per second of the kernel's matrix instructions at the peak clock; 0: it has none."""
    clocked_flops: float
    """FLOPs per second of the same instructions at the modelled clock."""
    hbm_bytes: float
    """Bytes per second that the HBM can read."""


@dataclass(frozen=True)
class Bound:
    """The activity that takes most of the launch's time.

    launch: nothing runs yet. unit: the busiest unit works. tail: CUs have no workgroup, or fewer
    than they hold. latency: the busiest unit is idle because waves wait. issue: the busiest unit is
    idle because waves issue to other units.
    """

    kind: Kind
    unit: str
    """Name of the busiest unit."""
    unit_share: float
    """Share of the launch's clocks in which the busiest unit works."""
    tail_share: float
    """Share of the launch's clocks in which a CU's place for a workgroup is empty."""
    launch_share: float
    """Share of the launch's time that the launch itself costs, before any workgroup runs."""


def limits(modelled: Modelled, workgroup: Workgroup) -> Limits:
    parameters = modelled.parameters
    per_clock = workgroup.matrix_flops_per_clock * parameters["compute_units"]
    return Limits(
        peak_flops=per_clock * parameters["clock"] * 1e9,
        clocked_flops=per_clock * modelled.clock_ghz * 1e9,
        hbm_bytes=parameters["hbm"] * 1e12,
    )


def is_matrix_bound(modelled: Modelled, limit: Limits) -> bool:
    """Whether the launch's FLOPs take longer than its bytes, each at the device's limit."""
    if not limit.clocked_flops:
        return False
    return modelled.flops / limit.clocked_flops >= modelled.bytes / limit.hbm_bytes


def bound(modelled: Modelled, clocks: Clocks) -> Bound:
    """Find what bounds the launch; `clocks`: those of the longest workgroup's average wave."""
    unit, share = next(iter(units(modelled).items()))
    tail, launch = 1 - modelled.busy_share, launch_share(modelled)
    idle = 1 - share - tail
    kind: Kind = "latency" if waiting(clocks) >= issuing(clocks) else "issue"
    if launch > (1 - launch) * max(share, tail, idle):
        kind = "launch"
    elif share >= BUSY:
        kind = "unit"
    elif tail >= idle:
        kind = "tail"
    return Bound(kind, unit, share, tail, launch)


def waiting(clocks: Clocks) -> float:
    """Clocks in which the average wave waits for results or for other waves."""
    return sum(value for name, value in clocks.stalls.items() if name not in QUEUES + ISSUE)


def issuing(clocks: Clocks) -> float:
    """Clocks in which the average wave issues instructions or waits to issue one."""
    return sum(clocks.issue.values()) + sum(clocks.stalls.get(name, 0.0) for name in ISSUE)
