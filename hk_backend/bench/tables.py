"""Benchmark rows as a table: on the terminal with colours, in a file as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hk_backend.bench.attention import Row

RATE_COLUMNS = ("hk", "sdpa", "sdpa_prepared", "matmul")
RATIO_COLUMNS = ("hk/sdpa", "hk/sdpa_prepared", "hk/matmul", "sdpa/matmul", "paged/packed")
WINS_OR_LOSES = ("hk/sdpa", "hk/sdpa_prepared")
HEADINGS = ("dtype", "d", "heads", "N", "keys", *RATE_COLUMNS, *RATIO_COLUMNS, "spread")


def cells(row: Row) -> list[str]:
    """One row as text: rates in GFLOP/s, ratios, spread in percent; a failed one says why."""
    case = row.case
    shape = [case.dtype, str(case.head_size), f"{case.num_heads}/{case.num_kv_heads}"]
    shape += [str(case.tokens), row.kv]
    if row.error:
        return [*shape, f"failed: {row.error}", *[""] * (len(HEADINGS) - len(shape) - 1)]
    rates = [f"{getattr(row, name):.1f}" for name in RATE_COLUMNS]
    ratios = [_ratio(row.ratios[name]) for name in RATIO_COLUMNS]
    return [*shape, *rates, *ratios, f"{row.spread:.0%}"]


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """The table on a terminal: green where HK is faster, red where it is slower or failed."""
    table = Table(*HEADINGS, title="attention_prefill, GFLOP/s (medians)")
    for row in rows:
        styled = []
        for heading, text in zip(HEADINGS, cells(row), strict=True):
            style = ""
            if row.error:
                style = "red"
            elif heading in WINS_OR_LOSES:
                style = "green" if row.ratios[heading] >= 1 else "red"
            styled.append(f"[{style}]{escape(text)}[/{style}]" if style else escape(text))
        table.add_row(*styled)
    console.print(table)
    console.print(summary(rows))


def summary(rows: Sequence[Row]) -> str:
    """Wins, losses and failures against SDPA on the same tensors, in one line."""
    measured = [row.ratios["hk/sdpa"] for row in rows if not row.error]
    wins = sum(ratio >= 1 for ratio in measured)
    line = f"{wins} wins, {len(measured) - wins} losses, {len(rows) - len(measured)} failed"
    return f"{line}; smallest ratio to SDPA {min(measured):.2f}" if measured else line


def markdown(headings: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _ratio(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"
