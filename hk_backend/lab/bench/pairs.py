"""Benchmarks of an operator that has one rival: HK's call and torch's, in alternation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from hk_backend.lab.bench.stopwatch import alternate


@dataclass(frozen=True)
class Pair:
    """Two calls that return the same tensor up to rounding. `stock` is torch's own."""

    name: str
    hk: Callable[[], torch.Tensor]
    stock: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class PairTiming:
    """Median milliseconds of a pair. `error`: why there are none, or why they do not count."""

    name: str
    hk_ms: float
    stock_ms: float
    error: str = ""

    @property
    def ratio(self) -> float:
        """The time of stock over that of HK: above 1, HK wins."""
        return self.stock_ms / self.hk_ms

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.name,
            "hk_ms": self.hk_ms,
            "stock_ms": self.stock_ms,
            "hk/stock": self.ratio,
            "error": self.error,
        }


@dataclass(frozen=True)
class PairSweep:
    """Pairs that are timed in `rounds` rounds."""

    pairs: Sequence[Pair]
    rounds: int

    def run(self, on_case: Callable[[str], object]) -> Iterator[PairTiming]:
        """Yields the timing of each pair; `on_case` is called with its name before."""
        for pair in self.pairs:
            on_case(pair.name)
            error = ""
            try:
                torch.testing.assert_close(pair.hk(), pair.stock())
            except AssertionError as wrong:
                error = f"HK's result is wrong: {wrong}"
            timed = alternate({"hk": pair.hk, "stock": pair.stock}, self.rounds)
            hk, stock = (1e3 * timed[name].median for name in ("hk", "stock"))
            yield PairTiming(pair.name, hk, stock, error)


def print_pairs(console: Console, rows: Sequence[PairTiming]) -> None:
    """Prints the table of a sweep, with wins and losses coloured."""
    table = Table("case", "HK ms", "torch ms", "HK/torch")
    for row in rows:
        colour = "green" if row.ratio >= 1 else "red"
        ratio = f"[{colour}]{row.ratio:.2f}[/{colour}]" if not row.error else row.error
        table.add_row(row.name, f"{row.hk_ms:.3g}", f"{row.stock_ms:.3g}", ratio)
    console.print(table)
