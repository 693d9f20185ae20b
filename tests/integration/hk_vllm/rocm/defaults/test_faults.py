"""Faults that a cell of the matrix must show: its numbers, or its counters, are wrong."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_vllm.rocm.defaults.choices import parent_of
from tests.integration.hk_vllm.rocm.defaults.run import hold
from tests.integration.hk_vllm.rocm.defaults.settings import Setting
from tests.integration.shared.defaults.cells import Cell
from tests.integration.shared.defaults.faults import (
    Fault,
    PageOffByOne,
    ValuesAsRows,
    WrongScale,
    take_speculative_rows,
)
from tests.integration.shared.defaults.models import LAYERS
from tests.integration.shared.defaults.traffic import AUTO, E5M2, TRAFFIC, Traffic
from tests.integration.shared.e2e.mutations import SPLIT_ROWS

SERVED = [traffic for traffic in TRAFFIC if traffic.cache != E5M2]
"""By vLLM itself."""
FAULTS: list[tuple[type[Fault], Traffic]] = [
    *((fault, traffic) for fault in (PageOffByOne, ValuesAsRows) for traffic in SERVED),
    *((WrongScale, traffic) for traffic in SERVED if traffic.cache != AUTO),
]


def cell_of(traffic: Traffic) -> Cell:
    """Llama's, which vLLM's default keeps in a split cache."""
    return Cell(LAYERS[0], str(Setting()), traffic)


@pytest.mark.parametrize(
    ("fault", "traffic"), FAULTS, ids=lambda of: getattr(of, "__name__", str(of))
)
def test_numbers_are_wrong(
    fault: type[Fault],
    traffic: Traffic,
    emulated: None,
    counters: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted as served all the same: only the numbers say it."""
    tell = Mock()
    assert_red(cell_of(traffic), lambda: fault(tell).install(monkeypatch), "out of bounds")
    assert tell.called


def test_speculative_rows_are_taken(
    emulated: None, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their numbers are right: only the counters say it."""
    [traffic] = [traffic for traffic in TRAFFIC if traffic.drafts]
    tell = Mock()
    assert_red(
        cell_of(traffic),
        lambda: take_speculative_rows(monkeypatch, SPLIT_ROWS, tell),
        "speculative verification",
    )
    assert tell.called


def assert_red(cell: Cell, install: Callable[[], None], why: str) -> None:
    """`cell` is green, and red once the fault is installed."""
    hold(cell, parent_of(cell), routes.counters("attention"))
    routes.reset()
    install()
    with pytest.raises(AssertionError, match=why):
        hold(cell, parent_of(cell), routes.counters("attention"))
