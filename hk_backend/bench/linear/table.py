"""The rows of `hk-backend bench linear` as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from hk_backend.bench.linear.measure import Row
from hk_backend.bench.tables import print_table, ratio

WINS_OR_LOSES = ("hk/fp32", "hk/bf16")
HEADINGS = (
    "layer",
    "N x K",
    "M",
    "weight",
    "activations",
    "HK ms",
    "GFLOP/s",
    "GB/s",
    *WINS_OR_LOSES,
    "hk/matmul",
    "hk/bound",
    "bound",
    "format/bf16",
    "spread",
)


def cells(row: Row) -> list[str]:
    """One row as text; a failed one says why."""
    case = row.case
    shape = [case.layer, f"{case.n}x{case.k}", str(case.tokens), row.format, row.activations]
    if row.error:
        return [*shape, f"failed: {row.error}", *[""] * (len(HEADINGS) - len(shape) - 1)]
    rates = [f"{row.hk_ms:.3g}", f"{row.gflops:.1f}", f"{row.gb_per_s:.1f}"]
    ratios = {name: ratio(value) for name, value in row.ratios.items()}
    few = [ratios["hk/bound"], row.bound] if case.few else ["", ""]
    against = [ratios[name] for name in (*WINS_OR_LOSES, "hk/matmul")]
    return [*shape, *rates, *against, *few, ratios["format/bf16"], f"{row.spread:.0%}"]


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """The table on a terminal: green where HK is faster, red where it is slower or failed."""
    title = "linear, medians; hk/fp32 and hk/bf16: torch's linear of the same shape"
    print_table(console, title, HEADINGS, map(cells, rows), map(_styles, rows))
    console.print(summary(rows))


def summary(rows: Sequence[Row]) -> str:
    """Wins, losses and failures against torch's bfloat16 linear, in one line."""
    measured = [row.ratios["hk/bf16"] for row in rows if not row.error]
    wins = sum(value >= 1 for value in measured)
    line = f"{wins} wins, {len(measured) - wins} losses, {len(rows) - len(measured)} failed"
    return f"{line}; smallest ratio to bfloat16 {min(measured):.2f}" if measured else line


def _styles(row: Row) -> list[str]:
    if row.error:
        return ["red"] * len(HEADINGS)
    return [
        ("green" if row.ratios[heading] >= 1 else "red") if heading in WINS_OR_LOSES else ""
        for heading in HEADINGS
    ]
