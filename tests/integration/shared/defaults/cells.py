"""The matrix of defaults: a cell is one kind of attention layer, under an engine as it starts by
default, with one kind of traffic. HK serves it, or names its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from hk_backend.engine.rows import SPECULATIVE
from hk_backend.routing.routes import RouteCounters
from tests.integration.shared.defaults.models import LAYERS, Attention
from tests.integration.shared.defaults.traffic import TRAFFIC, Traffic
from tests.integration.shared.e2e.compare import ROUTED_SHARE
from tests.kernels.cover import pairwise

NOT_SERVED: dict[str, str] = {}
"""What a cell may have that HK does not serve, and the reason that it counts; of several the first.
A line less, and its cells must be served."""


@dataclass(frozen=True)
class Cell:
    """`setting`: how the engine was started, in the words of the table."""

    attention: Attention
    setting: str
    traffic: Traffic

    def __str__(self) -> str:
        return f"{self.attention}-{self.setting}-{self.traffic}"

    def reason(self) -> str:
        """Why HK leaves it to the engine; empty: it serves it."""
        has: dict[str, bool] = {}
        return next((why for name, why in NOT_SERVED.items() if has[name]), "")


def judged(cell: Cell, counters: RouteCounters) -> str:
    """What HK counted of all steps of `cell`, held to what it must be; returns the reason."""
    left = {why: tally.tokens for why, tally in counters.fallbacks.items()}
    reason, prefill = cell.reason(), cell.traffic.prefill()
    if reason:
        assert set(left) - {SPECULATIVE} == {reason}, f"left because of {left}, not {reason}"
        return reason
    verified = cell.traffic.verified()
    expected = {SPECULATIVE: verified} if verified else {}
    assert left == expected, f"left because of {left}, not {expected}"
    served = counters.served.tokens
    assert ROUTED_SHARE * prefill <= served <= prefill, f"served {served} of {prefill} tokens"
    return ""


def cells(settings: Sequence[str], traffic: Sequence[Traffic] = TRAFFIC) -> list[Cell]:
    """The whole matrix of an engine."""
    return [Cell(*row) for row in product(LAYERS, settings, traffic)]


def covered(name: str, matrix: Sequence[Cell]) -> list[Any]:
    """Parameters of a test, `cell`: a pairwise cover, another for each commit; the rest is slow."""
    axes = zip(*((cell.attention, cell.setting, cell.traffic) for cell in matrix), strict=True)
    chosen = pairwise(name, [list(dict.fromkeys(axis)) for axis in axes])
    return [
        pytest.param(cell, marks=() if row in chosen else pytest.mark.slow, id=str(cell))
        for cell in matrix
        if (row := (cell.attention, cell.setting, cell.traffic))
    ]
