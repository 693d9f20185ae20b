"""docs/routing.md: what HK gets of each engine's defaults. Written by the tests of the matrix, run
with `--into docs/routing.md`; without it they compare, cell by cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from hk_backend.bench import tables
from tests.integration.shared.defaults.cells import Cell
from tests.models import ROOT

DOCUMENT = ROOT / "docs" / "routing.md"
SERVED = "HK"
HEADINGS = ("attention", "started with", "backend")


class Place(NamedTuple):
    """Of a cell."""

    attention: str
    setting: str
    traffic: str


class Found(NamedTuple):
    """The engine's `backend`, and why HK leaves the cell to it; empty: HK serves it."""

    backend: str
    reason: str


Table = Mapping[Place, Found]
Note = Callable[[Cell, Found], None]


def noting(engine: str, matrix: Sequence[Cell], config: pytest.Config) -> Iterator[Note]:
    """What notes a cell of `engine`: compares it with the document, or writes the document once the
    whole matrix was noted."""
    into = config.getoption("--into", None)
    found: dict[Place, Found] = {}
    documented = {} if into else read(DOCUMENT, engine)

    def note(cell: Cell, of: Found) -> None:
        found[place(cell)] = of
        if not into:
            assert documented[place(cell)] == of, f"{DOCUMENT.name} says so: run with --into"

    yield note
    if into:
        put_into(Path(into), engine, {each: found[each] for each in map(place, matrix)})


def place(cell: Cell) -> Place:
    return Place(cell.attention.name, cell.setting, cell.traffic.name)


def assert_whole(engine: str, matrix: Sequence[Cell]) -> None:
    """The document has the cells of `matrix`, no others, as `render` writes them."""
    table = read(DOCUMENT, engine)
    assert list(table) == list(map(place, matrix))
    assert render(table) == _block(DOCUMENT, engine)[1]


def render(table: Table) -> str:
    """A row for each attention and setting, a column for each kind of traffic; reasons below it."""
    traffic = list(dict.fromkeys(each.traffic for each in table))
    rows = list(dict.fromkeys((each.attention, each.setting) for each in table))
    reasons = [why for why in dict.fromkeys(of.reason for of in table.values()) if why]
    lines = []
    for row in rows:
        cells = [table[Place(*row, column)] for column in traffic]
        [backend] = {of.backend for of in cells}
        texts = [f"({reasons.index(of.reason) + 1})" if of.reason else SERVED for of in cells]
        lines.append([*row, backend, *texts])
    listed = "".join(f"{number}. `{why}`\n" for number, why in enumerate(reasons, 1))
    return f"{tables.markdown([*HEADINGS, *traffic], lines)}\n{listed}"


def read(document: Path, engine: str) -> Table:
    """What `render` has written there."""
    _, block, _ = _block(document, engine)
    reasons = dict(re.findall(r"^(\d+)\. `(.*)`$", block, re.MULTILINE))
    lines = [line.strip("| ").split(" | ") for line in block.splitlines() if line[:1] == "|"]
    headings, _, *rows = lines
    return {
        Place(attention, setting, traffic): Found(
            backend, "" if text == SERVED else reasons[text.strip("()")]
        )
        for attention, setting, backend, *texts in rows
        for traffic, text in zip(headings[len(HEADINGS) :], texts, strict=True)
    }


def put_into(document: Path, engine: str, table: Table) -> None:
    """Replace the engine's block."""
    before, _, after = _block(document, engine)
    document.write_text(before + render(table) + after)


def _block(document: Path, engine: str) -> tuple[str, str, str]:
    """What is before the engine's table, the table, and what is behind it."""
    begin = f"<!-- defaults of {engine}: written by their test, with --into -->\n"
    end = f"<!-- end of the defaults of {engine} -->\n"
    text = document.read_text()
    for line in (begin, end):
        assert line in text, f"{document}: no line {line!r}"
    before, _, rest = text.partition(begin)
    block, _, after = rest.partition(end)
    return before + begin, block, end + after
