"""The rows of `hk-backend bench attention` as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from hk_backend.bench import tables
from hk_backend.bench.attention.measure import Row

RATE_COLUMNS = ("hk", "sdpa", "sdpa_prepared", "matmul")
RATIO_COLUMNS = ("hk/sdpa", "hk/sdpa_prepared", "hk/matmul", "sdpa/matmul", "paged/packed")
WINS_OR_LOSES = ("hk/sdpa", "hk/sdpa_prepared")
NARROW = tables.Narrow(
    grouped=3,
    short={
        "sdpa_prepared": "sdpa+",
        "matmul": "mm",
        "hk/sdpa": "/sdpa",
        "hk/sdpa_prepared": "/sdpa+",
        "hk/matmul": "/mm",
        "sdpa/matmul": "s/mm",
        "paged/packed": "paged",
        "spread": "iqr",
    },
)
HEADINGS = ("dtype", "d", "heads", "N", "keys", *RATE_COLUMNS, *RATIO_COLUMNS, "spread")


def cells(row: Row) -> list[str]:
    """One row as text: rates in GFLOP/s, ratios, spread in percent; a failed one says why."""
    case = row.case
    shape = [case.dtype, str(case.head_size), f"{case.num_heads}/{case.num_kv_heads}"]
    shape += [str(case.tokens), row.kv]
    if row.error:
        return [*shape, f"{tables.FAILED}: {row.error}", *[""] * (len(HEADINGS) - len(shape) - 1)]
    rates = [tables.rate(getattr(row, name)) for name in RATE_COLUMNS]
    ratios = [tables.ratio(row.ratios[name]) for name in RATIO_COLUMNS]
    return [*shape, *rates, *ratios, tables.spread(row.spread)]


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """The table on a terminal: green where HK is faster, red where it is slower or failed."""
    title = "attention_prefill, GFLOP/s (medians)"
    styles = (tables.styles(row, HEADINGS, WINS_OR_LOSES) for row in rows)
    tables.print_table(console, title, HEADINGS, map(cells, rows), styles, NARROW)
    console.print(summary(rows), soft_wrap=True)


def summary(rows: Sequence[Row]) -> str:
    """Wins, losses and failures against SDPA on the same tensors, in one line."""
    return tables.summary(rows, "hk/sdpa", "SDPA")
