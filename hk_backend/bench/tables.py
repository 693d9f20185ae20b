"""Benchmark rows as a table: on the terminal with colours, in a file as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table


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
