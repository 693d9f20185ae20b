"""The matrix of defaults: a cell is one kind of attention layer, under an engine as it starts by
default, with one kind of traffic."""

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


@dataclass(frozen=True)
class Cell:
    """`setting`: how the engine was started, in the words of the table."""

    attention: Attention
    setting: str
    traffic: Traffic

    def __str__(self) -> str:
        return f"{self.attention}-{self.setting}-{self.traffic}"


def judge(cell: Cell, counters: RouteCounters) -> None:
    """Hold what HK counted of all steps of `cell` to what it must be: every prompt is HK's."""
    left = {why: tally.tokens for why, tally in counters.fallbacks.items()}
    verified, prefill = cell.traffic.verified(), cell.traffic.prefill()
    expected = {SPECULATIVE: verified} if verified else {}
    assert left == expected, f"left because of {left}, not {expected}"
    served = counters.served.tokens
    assert ROUTED_SHARE * prefill <= served <= prefill, f"served {served} of {prefill} tokens"


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
