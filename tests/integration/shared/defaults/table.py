"""The tables of docs/routing.md: what HK computes under each engine's defaults.

The tests of the matrix write them, if run with `--into docs/routing.md`. Without it they compare,
cell by cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from hk_backend.lab import tables
from tests.integration.shared.defaults.cells import Cell
from tests.models import ROOT

DOCUMENT = ROOT / "docs" / "routing.md"
ADVICE = "run this file with --into docs/routing.md"
SERVED = "HK"
SAME = "; "
"""The separator between attentions and between settings in one row."""
HEADINGS = ("attention", "started with", "backend")


class Place(NamedTuple):
    """The place of a cell in the table."""

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
    """A function that notes a cell of `engine`, and compares it with the document.

    With `--into` it writes the document, once the whole matrix was noted.
    """
    into = config.getoption("--into", None)
    found: dict[Place, Found] = {}
    documented = {} if into else whole(engine, matrix)

    def note(cell: Cell, of: Found) -> None:
        found[place(cell)] = of
        if not into:
            assert documented[place(cell)] == of, f"{DOCUMENT.name} says otherwise: {ADVICE}"

    yield note
    if into:
        put_into(Path(into), engine, {each: found[each] for each in map(place, matrix)})


def place(cell: Cell) -> Place:
    return Place(cell.attention.name, cell.setting, cell.traffic.name)


def whole(engine: str, matrix: Sequence[Cell]) -> Table:
    """The document's table, after a check that it is `render`'s, with the cells of `matrix`."""
    table = read(DOCUMENT, engine)
    assert set(table) == set(map(place, matrix)), f"{DOCUMENT.name} has other cells: {ADVICE}"
    assert render(table) == _block(DOCUMENT, engine)[1], f"{DOCUMENT.name} was edited: {ADVICE}"
    return table


def render(table: Table) -> str:
    """The table's text: a row for all attentions and settings with equal cells, then the reasons.

    Each kind of traffic is a column.
    """
    traffic = list(dict.fromkeys(each.traffic for each in table))
    reasons = [why for why in dict.fromkeys(of.reason for of in table.values()) if why]
    settings: dict[tuple[str, ...], list[str]] = {}
    for attention, setting in dict.fromkeys((each.attention, each.setting) for each in table):
        cells = [table[Place(attention, setting, column)] for column in traffic]
        [backend] = {of.backend for of in cells}
        texts = [f"({reasons.index(of.reason) + 1})" if of.reason else SERVED for of in cells]
        settings.setdefault((attention, backend, *texts), []).append(setting)
    attentions: dict[tuple[str, ...], list[str]] = {}
    for (attention, *rest), those in settings.items():
        attentions.setdefault((SAME.join(those), *rest), []).append(attention)
    lines = [[SAME.join(those), *rest] for rest, those in attentions.items()]
    listed = "".join(f"{number}. `{why}`\n" for number, why in enumerate(reasons, 1))
    return f"{tables.markdown([*HEADINGS, *traffic], lines)}\n{listed}"


def read(document: Path, engine: str) -> Table:
    """The table that `render` has written into `document`."""
    _, block, _ = _block(document, engine)
    reasons = dict(re.findall(r"^(\d+)\. `(.*)`$", block, re.MULTILINE))
    lines = [line.strip("| ").split(" | ") for line in block.splitlines() if line[:1] == "|"]
    headings, _, *rows = lines or [[], []]
    return {
        Place(attention, setting, traffic): Found(
            backend, "" if text == SERVED else reasons[text.strip("()")]
        )
        for attentions, settings, backend, *texts in rows
        for attention in attentions.split(SAME)
        for setting in settings.split(SAME)
        for traffic, text in zip(headings[len(HEADINGS) :], texts, strict=True)
    }


def put_into(document: Path, engine: str, table: Table) -> None:
    """Replace the engine's block."""
    before, _, after = _block(document, engine)
    document.write_text(before + render(table) + after)


def _block(document: Path, engine: str) -> tuple[str, str, str]:
    """The document's text before the engine's table, the table, and the text behind it."""
    begin = f"<!-- defaults of {engine}: written by their test, with --into -->\n"
    end = f"<!-- end of the defaults of {engine} -->\n"
    text = document.read_text()
    for line in (begin, end):
        assert line in text, f"{document}: no line {line!r}"
    before, _, rest = text.partition(begin)
    block, _, after = rest.partition(end)
    return before + begin, block, end + after
