"""The matrix of SGLang's defaults on an MI355X, cell by cell, which docs/routing.md shows.

pytest tests/integration/hk_sglang/rocm/defaults --into docs/routing.md
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.hk_sglang.rocm.defaults.sessions import Sessions
from tests.integration.hk_sglang.rocm.defaults.settings import MATRIX
from tests.integration.shared.defaults import table
from tests.integration.shared.defaults.cells import Cell, covered
from tests.integration.shared.defaults.table import Found, Note

ENGINE = "SGLang"


@pytest.fixture(scope="module")
def note(request: pytest.FixtureRequest) -> Iterator[Note]:
    yield from table.noting(ENGINE, MATRIX, request.config)


@pytest.mark.parametrize("cell", covered("SGLang's defaults", MATRIX))
def test_cell(cell: Cell, sessions: Sessions, note: Note) -> None:
    """HK computes the prompts' tokens, exactly to rounding, or says why not."""
    answer = sessions.ask(cell)
    assert "found" in answer, answer["trace"]
    note(cell, Found(*answer["found"]))


def test_llama_and_qwen_are_served() -> None:
    """Whatever the traffic."""
    found = {cell.reason() for cell in MATRIX if cell.attention.name.startswith(("Llama", "Qwen"))}
    assert found == {""}
