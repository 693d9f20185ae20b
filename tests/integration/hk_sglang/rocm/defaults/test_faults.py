"""Faults that a cell of the matrix must show: its numbers, or its counters, are wrong."""

from __future__ import annotations

import pytest

from tests.integration.hk_sglang.rocm.defaults.sessions import Sessions
from tests.integration.hk_sglang.rocm.defaults.settings import MATRIX, SETTINGS
from tests.integration.shared.defaults.cells import Cell
from tests.integration.shared.defaults.models import LAYERS
from tests.integration.shared.defaults.traffic import CHECKPOINT

LLAMA = [cell for cell in MATRIX if cell.attention == LAYERS[0]]
SERVED = [cell for cell in LLAMA if not cell.reason()]
"""Whose extends HK reads from the cache."""
ONE_EACH = [cell for cell in SERVED if cell.traffic.name in ("prefix hits", "mixed batches")]
SPLIT = [cell for cell in ONE_EACH if SETTINGS[cell.setting].page_size > 1]
SCALED = [cell for cell in SERVED if cell.traffic.cache == CHECKPOINT]
NUMBERS = [
    *(("PageOffByOne", cell) for cell in ONE_EACH),
    *(("ValuesAsRows", cell) for cell in SPLIT),
    *(("WrongScale", cell) for cell in SCALED),
]


@pytest.mark.parametrize(("fault", "cell"), NUMBERS, ids=str)
def test_numbers_are_wrong(fault: str, cell: Cell, sessions: Sessions) -> None:
    """Counted as served all the same: only the numbers say it."""
    assert_red(sessions, cell, fault, "out of bounds")


@pytest.mark.parametrize("cell", [cell for cell in LLAMA if cell.traffic.drafts], ids=str)
def test_speculative_rows_are_taken(cell: Cell, sessions: Sessions) -> None:
    """Their numbers are right: only the counters say it."""
    assert_red(sessions, cell, "take_verify_batches", "speculative verification")


def assert_red(sessions: Sessions, cell: Cell, fault: str, why: str) -> None:
    """`cell` is green, and red with the fault."""
    assert "found" in sessions.ask(cell)
    answer = sessions.ask(cell, fault)
    assert why in answer["error"], answer["error"]
    assert answer["faulty"]
