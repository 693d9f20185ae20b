"""The matrix of SGLang's defaults on an MI355X, cell by cell, which docs/routing.md shows; and
faults that a cell must show: its numbers, or its counters, are wrong.

pytest tests/integration/hk_sglang/rocm/defaults --into docs/routing.md
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.hk_sglang.rocm.defaults.sessions import Sessions
from tests.integration.hk_sglang.rocm.defaults.settings import MATRIX, SETTINGS
from tests.integration.shared.defaults import table
from tests.integration.shared.defaults.cells import Cell, covered
from tests.integration.shared.defaults.models import LAYERS
from tests.integration.shared.defaults.table import Found, Note
from tests.integration.shared.defaults.traffic import CHECKPOINT

LLAMA = [cell for cell in MATRIX if cell.attention == LAYERS[0]]
ONE_EACH = [cell for cell in LLAMA if cell.traffic.name in ("prefix hits", "mixed batches")]
OUT_OF_BOUNDS = "out of bounds"
FAULTS = [
    *(("PageOffByOne", cell, OUT_OF_BOUNDS) for cell in ONE_EACH),
    *(
        ("ValuesAsRows", cell, OUT_OF_BOUNDS)
        for cell in ONE_EACH
        if SETTINGS[cell.setting].page_size > 1
    ),
    *(("WrongScale", cell, OUT_OF_BOUNDS) for cell in LLAMA if cell.traffic.cache == CHECKPOINT),
    *(
        ("take_verify_batches", cell, "speculative verification")
        for cell in LLAMA
        if cell.traffic.drafts
    ),
]
"""With what it makes red: numbers, of calls that HK counts as served all the same; or its counters,
where the numbers are right."""


@pytest.fixture(scope="module")
def note(request: pytest.FixtureRequest) -> Iterator[Note]:
    yield from table.noting("SGLang", MATRIX, request.config)


@pytest.mark.parametrize("cell", covered("SGLang's defaults", MATRIX))
def test_cell(cell: Cell, sessions: Sessions, note: Note) -> None:
    """HK computes the prompts' tokens, exactly to rounding, or says why not."""
    answer = sessions.ask(cell)
    assert "found" in answer, answer["trace"]
    note(cell, Found(*answer["found"]))


@pytest.mark.parametrize(("fault", "cell", "why"), FAULTS, ids=str)
def test_a_fault(fault: str, cell: Cell, why: str, sessions: Sessions) -> None:
    """The cell is green, and red with the fault."""
    assert "found" in sessions.ask(cell)
    answer = sessions.ask(cell, fault)
    assert why in answer["error"], answer["error"]
    assert answer["faulty"]
