"""What takes most of a launch's time."""

from __future__ import annotations

from dataclasses import dataclass

from hk_backend.timing.model import Modelled

LAUNCH, IDLE = "launch", "idle CUs"


@dataclass(frozen=True)
class Busiest:
    """`name`: a unit of the CU, `LAUNCH`, or `IDLE`: CUs without a workgroup. `share`: of the
    launch's time for which it is so; what is missing to 1 is spent waiting for something else."""

    name: str
    share: float


def busiest(modelled: Modelled) -> Busiest:
    """The largest share. A vector instruction and the issue of a matrix instruction share a port,
    so both count as `vector`."""
    running = modelled.clocks / modelled.clock_ghz / 1e3 / modelled.microseconds
    shares = dict(modelled.unit_share)
    shares["vector"] += shares.pop("matrix issue")
    shares[IDLE] = 1 - modelled.busy_share
    largest = max(shares, key=lambda name: shares[name])
    found = Busiest(largest, shares[largest] * running)
    return found if found.share >= 1 - running else Busiest(LAUNCH, 1 - running)
