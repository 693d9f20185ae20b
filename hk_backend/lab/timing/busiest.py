"""The activity that takes most of a launch's time."""

from __future__ import annotations

from dataclasses import dataclass

from hk_backend.lab.timing.model import Modelled

LAUNCH, IDLE = "launch", "idle CUs"


@dataclass(frozen=True)
class Busiest:
    """The activity that takes the largest share of a launch's time.

    `name`: a unit of the CU, `LAUNCH`, or `IDLE` (CUs without a workgroup). `share`: this
    activity's share of the launch's time; the rest is spent waiting for something else.
    """

    name: str
    share: float


def units(modelled: Modelled) -> dict[str, float]:
    """Each unit's share of the launch's clocks, the busiest first. A vector instruction and the
    issue of a matrix instruction share a port, so both count as `vector`."""
    shares = dict(modelled.unit_share)
    shares["vector"] += shares.pop("matrix issue")
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def launch_share(modelled: Modelled) -> float:
    """Share of the launch's time in which no workgroup runs: the cost of launching."""
    return 1 - modelled.clocks / modelled.clock_ghz / 1e3 / modelled.microseconds


def busiest(modelled: Modelled) -> Busiest:
    """The activity with the largest share of the launch's time."""
    running = 1 - launch_share(modelled)
    shares = {**units(modelled), IDLE: 1 - modelled.busy_share}
    largest = max(shares, key=lambda name: shares[name])
    found = Busiest(largest, shares[largest] * running)
    return found if found.share >= 1 - running else Busiest(LAUNCH, 1 - running)
