"""The cells of the matrix of defaults, which says what HK computes under engines as they start.

A cell is one kind of attention layer, one way to start an engine, and one kind of traffic.
"""

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
from tests.seed import draw


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix; `setting`: how the engine was started, in the words of the table."""

    attention: Attention
    setting: str
    traffic: Traffic

    def __str__(self) -> str:
        return f"{self.attention}-{self.setting}-{self.traffic}"


def judge(cell: Cell, counters: RouteCounters) -> None:
    """Hold HK's counters after all steps of `cell`: HK must have computed every prompt."""
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
    """Parameters of a test, `cell`: a pairwise cover is proved, and always the same.

    Of the others the commit draws one for each value; the rest is slow.
    """
    columns = zip(*((cell.attention, cell.setting, cell.traffic) for cell in matrix), strict=True)
    axes: list[list[Any]] = [list(dict.fromkeys(column)) for column in columns]
    proved = set(pairwise(name, axes))
    drawn = set(single(name, axes))

    def marks(cell: Cell) -> tuple[pytest.MarkDecorator, ...]:
        row = (cell.attention, cell.setting, cell.traffic)
        if row in proved:
            return (pytest.mark.engine_proof,)
        return () if row in drawn else (pytest.mark.slow,)

    return [pytest.param(cell, marks=marks(cell), id=str(cell)) for cell in matrix]


def single(name: str, axes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows with each value of each axis, drawn by the commit."""
    generator = draw(name)
    shuffled = [generator.sample(axis, len(axis)) for axis in axes]
    length = max(map(len, axes))
    return [tuple(axis[turn % len(axis)] for axis in shuffled) for turn in range(length)]
