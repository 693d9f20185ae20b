"""Modelled evidence: HK's planned time beside a clock's for the engine's kernels, on no real GPU.

    modelling.use(clock, "emulated:gfx950")  # by whoever runs the engine's kernels in an emulator

Attention is modelled: its prefill and its decode. A linear layer's product may be torch's on the
CPU, which takes no modelled time. Without a clock HK serves the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hk_backend.devices import device_for
from hk_backend.devices.base import Request
from hk_backend.engine.attention import DECODE, ROUTE
from hk_backend.engine.evidence.contest import Call, Contest
from hk_backend.terms.measurements import Times

Clock = Callable[[Call], float]
"""Returns the modelled microseconds of the engine's kernels in a call; 0: it launched none."""
OPERATORS = (ROUTE, DECODE)
MOST_ROWS = 512
"""Longest prompt that is modelled; longer ones take minutes to trace."""

_clocks: dict[str, Clock] = {}


def use(clock: Clock, device: str) -> None:
    """Takes this clock for the engine's kernels beside HK's `device`, from now on."""
    _clocks[device] = clock


def forget() -> None:
    """Leaves this process without a clock."""
    _clocks.clear()


def has_clock(operator: str, device: str) -> bool:
    """Whether this process can model the engine's side of an operator."""
    return operator in OPERATORS and device in _clocks


def modelled(contest: Contest, device: str) -> tuple[tuple[Times, ...], tuple[int, ...]]:
    """Models both sides for each number of rows.

    Returns:
        the times, and the numbers of rows that are too many to be modelled. No times if one side
        is unknown: there is no plan, or no kernel of the engine's that the clock sees.

    Raises:
        Exception: whatever a side raises.
    """
    if contest.planned is None:
        return (), ()
    first, *more = contest.rows
    few = (first, *(rows for rows in more if rows <= MOST_ROWS))
    times = []
    for rows in few:
        theirs = _clocks[device](contest.theirs(rows))
        if not theirs:
            return (), ()
        ours = contest.planned(rows)
        times.append(Times(rows=rows, ours=_rounded(ours), theirs=_rounded(theirs)))
    return tuple(times), contest.rows[len(few) :]


def planned(request: Request) -> Callable[[int], float]:
    """Returns the modelled microseconds of HK's launch for a layer, by its number of rows."""
    device: Any = device_for(request.device_type)
    return lambda rows: float(device.microseconds(request, rows))


def _rounded(microseconds: float) -> float:
    return float(f"{microseconds:.4g}")
