"""Benchmark rows as a table: on the terminal with colours, in a file as Markdown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table


class Measured(Protocol):
    """A row of a benchmark: ratios by column, above 1 a win; or the error that it failed with."""

    error: str

    @property
    def ratios(self) -> Mapping[str, float]: ...


def summary(rows: Iterable[Measured], column: str, against: str) -> str:
    """Wins, losses and failures of the ratio in `column`, in one line."""
    rows = list(rows)
    found = [row.ratios[column] for row in rows if not row.error]
    wins = sum(value >= 1 for value in found)
    line = f"{wins} wins, {len(found) - wins} losses, {len(rows) - len(found)} failed"
    return f"{line}; smallest ratio to {against} {min(found):.2f}" if found else line


def styles(row: Measured, headings: Sequence[str], wins_or_loses: Collection[str]) -> list[str]:
    """A style per cell: green where HK is faster, red where it is slower or failed."""
    if row.error:
        return ["red"] * len(headings)
    return [
        ("green" if row.ratios[heading] >= 1 else "red") if heading in wins_or_loses else ""
        for heading in headings
    ]


def print_table(
    console: Console,
    title: str,
    headings: Sequence[str],
    lines: Iterable[Sequence[str]],
    styles: Iterable[Sequence[str]],
) -> None:
    """A table on a terminal; `styles` has a rich style per cell, empty for none."""
    table = Table(*headings, title=title)
    for cells, looks in zip(lines, styles, strict=True):
        texts = [
            f"[{look}]{escape(cell)}[/{look}]" if look else escape(cell)
            for cell, look in zip(cells, looks, strict=True)
        ]
        table.add_row(*texts)
    console.print(table)


def markdown(headings: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def ratio(value: float) -> str:
    """Two digits; empty if it was not measured."""
    return "" if math.isnan(value) else f"{value:.2f}"


def without_nan(data: dict[str, object]) -> dict[str, object]:
    """JSON has no NaN: what was not measured is null."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in data.items()
    }
