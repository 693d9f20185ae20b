"""The table in the document: what was written is read back, and a cell that changed is seen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.shared.defaults import table
from tests.integration.shared.defaults.cells import Cell, cells
from tests.integration.shared.defaults.table import Found

ENGINE, MATRIX = "an engine", cells(["by default", "otherwise"])
MARKS = """before
<!-- defaults of an engine: written by their test, with --into -->
<!-- end of the defaults of an engine -->
after
"""
noting: Callable[..., Any] = contextmanager(table.noting)


def options(into: Path | None) -> Any:
    return SimpleNamespace(getoption=lambda name, default: into)


def found(cell: Cell) -> Found:
    """Some layers get another backend if the engine is started otherwise."""
    other = cell.attention.sinks and cell.setting == "otherwise"
    return Found("OTHER" if other else "FIRST", "")


def test_what_was_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "document.md"
    document.write_text(MARKS)
    monkeypatch.setattr(table, "DOCUMENT", document)
    with pytest.raises(KeyError), noting(ENGINE, MATRIX, options(document)) as note:
        note(MATRIX[0], found(MATRIX[0]))
    assert document.read_text() == MARKS, "half a matrix is not written"
    with noting(ENGINE, MATRIX, options(document)) as note:
        for cell in reversed(MATRIX):
            note(cell, found(cell))
    assert document.read_text().startswith("before\n<!--")
    assert document.read_text().endswith("-->\nafter\n")
    assert "| Llama 3 | by default; otherwise | FIRST | HK |" in document.read_text()
    with noting(ENGINE, MATRIX, options(None)) as note:
        for cell in MATRIX:
            note(cell, found(cell))
        for changed in ({"reason": "another"}, {"backend": "another"}):
            with pytest.raises(AssertionError, match="says otherwise"):
                note(MATRIX[0], found(MATRIX[0])._replace(**changed))
    with pytest.raises(AssertionError, match="has other cells"):
        table.whole(ENGINE, MATRIX[1:])
    document.write_text(document.read_text().replace("---", "----", 1))
    with pytest.raises(AssertionError, match="was edited"):
        table.whole(ENGINE, MATRIX)
