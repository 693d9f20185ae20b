"""Modelled evidence: HK's planned time beside a clock's for the engine's kernels, on no real GPU.

    modelling.use(clock)  # what runs the engine's kernels in an emulator installs it

Without a clock the engine's time on an emulated GPU is unknown, and HK serves the layer.
"""

from __future__ import annotations

from collections.abc import Callable

from hk_backend.engine.evidence.contest import Call, Contest
from hk_backend.terms.measurements import Times

Clock = Callable[[Call], float]
"""Returns the modelled microseconds of the engine's kernels in a call; 0: it launched none."""

_clocks: list[Clock] = []


def use(clock: Clock | None) -> None:
    """Takes this clock for the engine's kernels in this process, from now on; None: no clock."""
    _clocks[:] = [] if clock is None else [clock]


def modelled(contest: Contest) -> tuple[Times, ...]:
    """Models both sides for each number of rows.

    Returns:
        nothing if one side's time is unknown: there is no clock, no plan, or no kernel of the
        engine's that the clock sees.

    Raises:
        Exception: whatever a side raises.
    """
    if not _clocks or contest.planned is None:
        return ()
    (clock,) = _clocks
    times = []
    for rows in contest.rows:
        theirs = clock(contest.theirs(rows))
        if not theirs:
            return ()
        times.append(
            Times(rows=rows, ours=_rounded(contest.planned(rows)), theirs=_rounded(theirs))
        )
    return tuple(times)


def _rounded(microseconds: float) -> float:
    return float(f"{microseconds:.4g}")


def has_clock() -> bool:
    """Whether this process can model the engine's kernels."""
    return bool(_clocks)
