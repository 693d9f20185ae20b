"""The requests of a batch, row by row, and which of their tokens are prefill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One request: `query` new tokens behind `cached` ones."""

    query: int
    cached: int = 0

    @property
    def length(self) -> int:
        return self.query + self.cached


DECODE, FRESH, FRESH_ONE, PADDING = Row(1, 37), Row(5), Row(1), Row(0)


def prefill_tokens(rows: Iterable[Row]) -> int:
    """What counts as a prompt's tokens: those of requests with more than one."""
    return sum(row.query for row in rows if row.query > 1)
