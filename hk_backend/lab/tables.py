"""Tables of benchmark rows: on the terminal with colours, in a file as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

FAILED = "failed"
"""Beginning of the cell that says why a row has no numbers; the reason follows."""


class Measured(Protocol):
    """A row of a benchmark: ratios by column (above 1 a win), or the error that it failed with."""

    error: str

    @property
    def ratios(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Narrow:
    """The way in which a table is split on a narrow terminal.

    Each value of the first columns gets a table. `grouped`: number of first columns, which go into
    its title. `short`: short headings by heading; "" leaves the column out.
    """

    grouped: int
    short: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """The table that shows the rows of a benchmark.

    `names`, `figures`: functions that return a row's text, for the first of `headings` and for the
    others. `wins_or_loses`: ratios whose cells are coloured. `column`: heading of the ratio that
    counts as win or loss. `against`: name of what that ratio compares HK with.
    """

    title: str
    headings: Sequence[str]
    narrow: Narrow
    names: Callable[[Any], list[str]]
    figures: Callable[[Any], list[str]]
    wins_or_loses: Collection[str]
    column: str
    against: str

    def cells(self, row: Measured) -> list[str]:
        """The text of a row, one for each of `headings`; a failed row says why."""
        names = self.names(row)
        figures = [f"{FAILED}: {row.error}"] if row.error else self.figures(row)
        return [*names, *figures, *[""] * (len(self.headings) - len(names) - len(figures))]

    def summary(self, rows: Sequence[Measured]) -> str:
        """One line with the wins, losses and failures by the ratio of `column`."""
        good = [row.ratios[self.column] for row in rows if not row.error]
        found = [ratio for ratio in good if not math.isnan(ratio)]
        wins = sum(value >= 1 for value in found)
        line = f"{wins} wins, {len(found) - wins} losses, {len(rows) - len(good)} failed"
        if len(found) < len(good):
            line += f", {len(good) - len(found)} without a ratio"
        return f"{line}; smallest ratio to {self.against} {min(found):.2f}" if found else line

    def print(self, console: Console, rows: Sequence[Measured]) -> None:
        """Print the table; a terminal shows wins in green, losses and failures in red."""
        styles = (self._styles(row) for row in rows)
        lines = map(self.cells, rows)
        print_table(console, self.title, self.headings, lines, styles, self.narrow)
        console.print(self.summary(rows), soft_wrap=True)

    def _styles(self, row: Measured) -> list[str]:
        """The style of each of a row's cells."""
        if row.error:
            return ["red"] * len(self.headings)
        return [
            ("green" if row.ratios[heading] >= 1 else "red")
            if heading in self.wins_or_loses
            else ""
            for heading in self.headings
        ]


def print_table(
    console: Console,
    title: str,
    headings: Sequence[str],
    lines: Iterable[Sequence[str]],
    styles: Iterable[Sequence[str]],
    narrow: Narrow,
) -> None:
    """Print a table without cutting it: abbreviated on a narrow terminal, in full width in a pipe.

    `styles` has a rich style for each cell; empty: none. A cell that begins with `FAILED` is cut to
    this word, and its whole text is printed under the table.
    """
    rows = [
        [Text(cell, look) for cell, look in zip(cells, looks, strict=True)]
        for cells, looks in zip(lines, styles, strict=True)
    ]
    errors = [_take_error(row) for row in rows]
    whole = Table(*headings, title=title, title_justify="left")
    for row in rows:
        whole.add_row(*row)
    if not console.is_terminal or _width(console, whole) <= console.width:
        print_whole(console, whole)
    else:
        console.print(title, markup=False)
        for group in _groups(headings, rows, narrow):
            print_whole(console, group)
        short = {name: mark for name, mark in narrow.short.items() if mark and mark != name}
        console.print(", ".join(f"{mark}: {name}" for name, mark in short.items()), style="dim")
    for error in filter(None, errors):
        console.print(error, style="red", soft_wrap=True)


def plain_table(*headings: str, gap: int = 2) -> Table:
    """A table without lines, with `gap` spaces between columns.

    A heading that begins with > is of numbers.
    """
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    for heading in headings:
        right = heading.startswith(">")
        table.add_column(heading.removeprefix(">"), justify="right" if right else "left")
    return table


def print_whole(console: Console, table: Table) -> None:
    """Print a table at its own width; a narrower terminal wraps its lines."""
    table.width = _width(console, table)
    console.print(table, crop=False)


def _width(console: Console, table: Table) -> int:
    return Measurement.get(console, console.options.update(width=10_000), table).maximum


def _take_error(row: list[Text]) -> str:
    """Shorten a failed row's cell; return its whole text behind the row's first cells."""
    for place, cell in enumerate(row):
        if cell.plain.startswith(FAILED):
            said = cell.plain
            row[place] = Text(FAILED, cell.style)
            return f"{' '.join(cell.plain for cell in row[:place])}: {said}"
    return ""


def _groups(
    headings: Sequence[str], rows: Sequence[Sequence[Text]], narrow: Narrow
) -> Iterator[Table]:
    kept = [i for i in range(narrow.grouped, len(headings)) if narrow.short.get(headings[i], "-")]
    titles = [" ".join(cell.plain for cell in row[: narrow.grouped]) for row in rows]
    for title in dict.fromkeys(titles):
        table = plain_table(*(narrow.short.get(headings[i], headings[i]) for i in kept), gap=1)
        table.title, table.title_justify = title, "left"
        for found, row in zip(titles, rows, strict=True):
            if found == title:
                table.add_row(*(row[i] for i in kept))
        yield table


def markdown(headings: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def ratio(value: float) -> str:
    """A ratio with two decimals; empty if it was not measured."""
    return "" if math.isnan(value) else f"{value:.2f}"


def rate(value: float) -> str:
    """A rate without decimals from 100 on, else with one."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def spread(value: float) -> str:
    """A spread in percent; empty: NaN, since a single sample has no spread."""
    return "" if math.isnan(value) else f"{value:.0%}"


def without_nan(data: dict[str, object]) -> dict[str, object]:
    """A copy of `data` with null for NaN, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in data.items()
    }
