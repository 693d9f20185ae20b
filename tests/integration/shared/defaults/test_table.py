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
from tests.integration.shared.defaults.table import Found, Note

ENGINE, MATRIX = "an engine", cells(["by default", "otherwise"])


@pytest.fixture
def document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written = tmp_path / "document.md"
    lines = ["before", *(f"<!-- {text} -->" for text in MARKS), "after", ""]
    written.write_text("\n".join(lines))
    monkeypatch.setattr(table, "DOCUMENT", written)
    return written


MARKS = (
    f"defaults of {ENGINE}: written by their test, with --into",
    f"end of the defaults of {ENGINE}",
)
noting: Callable[..., Any] = contextmanager(table.noting)


def options(into: Path | None) -> Any:
    return SimpleNamespace(getoption=lambda name, default: into)


def found(cell: Cell) -> Found:
    """Some layers get another backend if the engine is started otherwise."""
    other = cell.attention.sinks and cell.setting == "otherwise"
    return Found("OTHER" if other else "FIRST", cell.reason())


def test_what_was_written_is_read(document: Path) -> None:
    with noting(ENGINE, MATRIX, options(document)) as note:
        for cell in reversed(MATRIX):
            note(cell, found(cell))
    assert document.read_text().startswith("before\n<!--")
    assert document.read_text().endswith("-->\nafter\n")
    assert "| Llama 3 | by default; otherwise | FIRST | HK |" in document.read_text()
    with noting(ENGINE, MATRIX, options(None)) as note:
        for cell in MATRIX:
            note(cell, found(cell))
        assert_seen(note, found(MATRIX[0])._replace(reason="another"))
        assert_seen(note, found(MATRIX[0])._replace(backend="another"))
    assert_refused("has other cells", MATRIX[1:])
    document.write_text(document.read_text().replace("---", "----", 1))
    assert_refused("was edited", MATRIX)


def assert_seen(note: Note, changed: Found) -> None:
    with pytest.raises(AssertionError, match="says otherwise"):
        note(MATRIX[0], changed)


def assert_refused(why: str, matrix: list[Cell]) -> None:
    with pytest.raises(AssertionError, match=why):
        table.whole(ENGINE, matrix)


def test_half_a_matrix_is_not_written(document: Path) -> None:
    before = document.read_text()
    with pytest.raises(KeyError), noting(ENGINE, MATRIX, options(document)) as note:
        note(MATRIX[0], found(MATRIX[0]))
    assert document.read_text() == before
