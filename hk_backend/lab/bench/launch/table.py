"""The table of `hk-backend bench launch`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from hk_backend.lab.bench.launch.measure import Row


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    figures = ("us per layer", "us empty operator", "ratio", "us more per launch")
    table = Table("engine", "step", *figures, "error")
    for row in rows:
        numbers = (row.us_per_layer, row.us_empty_operator, row.ratio, row.us_more_per_launch)
        table.add_row(row.engine, row.step, *(f"{number:.2f}" for number in numbers), row.error)
    console.print(table)
