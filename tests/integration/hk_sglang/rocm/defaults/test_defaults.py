"""The matrix of SGLang's defaults on an MI355X, cell by cell, as docs/routing.md shows it.

pytest tests/integration/hk_sglang/rocm/defaults --into docs/routing.md
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.hk_sglang.rocm.conftest import Sessions
from tests.integration.hk_sglang.rocm.defaults.settings import MATRIX
from tests.integration.shared.defaults import table
from tests.integration.shared.defaults.cells import Cell, covered
from tests.integration.shared.defaults.table import Found, Note


@pytest.fixture(scope="module")
def note(request: pytest.FixtureRequest) -> Iterator[Note]:
    yield from table.noting("SGLang", MATRIX, request.config)


@pytest.mark.parametrize("cell", covered("SGLang's defaults", MATRIX))
def test_cell(cell: Cell, sessions: Sessions, note: Note) -> None:
    """HK computes the prompts' tokens, exactly to rounding, or says why not."""
    answer = sessions.ask(cell)
    assert "found" in answer, answer["error"]
    note(cell, Found(*answer["found"]))
