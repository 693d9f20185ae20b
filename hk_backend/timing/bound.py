"""What a launch could reach at most, and what keeps it from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hk_backend.timing.busiest import launch_share, units
from hk_backend.timing.model import Modelled
from hk_backend.timing.workgroup import Clocks, Workgroup

Kind = Literal["unit", "latency", "issue", "tail", "launch"]
QUEUES = ("matrix busy", "vector busy", "lds busy", "memory busy")
"""Stalls in front of a unit that works; the others are waits for a result or for another wave."""
ISSUE = ("other wave", "itself")
"""Stalls for a turn: the unit takes another wave's instruction, or the wave's last one lasts."""
BUSY = 0.6
"""Of the launch's clocks: a unit that works for more of them is what bounds it."""


@dataclass(frozen=True)
class Limits:
    """Of the whole device."""

    peak_flops: float
    """Per second, of these matrix instructions at the peak clock; 0 without any."""
    clocked_flops: float
    """The same at the modelled clock."""
    hbm_bytes: float
    """Per second, reads."""


@dataclass(frozen=True)
class Bound:
    """What most of the launch's time goes to.

    launch: nothing runs yet. unit: the busiest unit works. tail: CUs have no workgroup, or fewer
    than they hold. latency: the busiest unit has nothing to do, because waves wait; issue: because
    they issue to others.
    """

    kind: Kind
    unit: str
    """The busiest."""
    unit_share: float
    """Of the launch's clocks, in which that works."""
    tail_share: float
    """In which a CU's place for a workgroup is empty."""
    launch_share: float
    """Of its time: its own cost."""


def limits(modelled: Modelled, workgroup: Workgroup) -> Limits:
    parameters = modelled.parameters
    per_clock = workgroup.matrix_flops_per_clock * parameters["compute_units"]
    return Limits(
        peak_flops=per_clock * parameters["clock"] * 1e9,
        clocked_flops=per_clock * modelled.clock_ghz * 1e9,
        hbm_bytes=parameters["hbm"] * 1e12,
    )


def is_matrix_bound(modelled: Modelled, limit: Limits) -> bool:
    """Whether its FLOPs take longer than its bytes, each at its limit."""
    if not limit.clocked_flops:
        return False
    return modelled.flops / limit.clocked_flops >= modelled.bytes / limit.hbm_bytes


def bound(modelled: Modelled, clocks: Clocks) -> Bound:
    """`clocks`: of the waves of the longest workgroup."""
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
    """For results, and for other waves."""
    return sum(value for name, value in clocks.stalls.items() if name not in QUEUES + ISSUE)


def issuing(clocks: Clocks) -> float:
    """Instructions, or waiting for the turn."""
    return sum(clocks.issue.values()) + sum(clocks.stalls.get(name, 0.0) for name in ISSUE)
