"""The requests of a batch, row by row, and their prefill tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random


@dataclass(frozen=True)
class Row:
    """One request: `query` new tokens behind `cached` ones; `verifies`: all but one are drafts."""

    query: int
    cached: int = 0
    verifies: bool = False

    @property
    def length(self) -> int:
        return self.query + self.cached

    @property
    def prefilling(self) -> bool:
        """Whether an engine that tells counts some of the row's new tokens as its prompt's."""
        return not self.verifies and (self.query > 1 or (self.query == 1 and not self.cached))


DECODE, EXTEND, FRESH, FRESH_ONE, PADDING = Row(1, 37), Row(6, 41), Row(5), Row(1), Row(0)
DRAFTS = 3
VERIFY = Row(1 + DRAFTS, 30, verifies=True)
SHORT_EXTEND = Row(3, 24)
"""The end of a prompt's last chunk: as short as a row that verifies drafts."""

KINDS = (DECODE, EXTEND, FRESH, FRESH_ONE, PADDING, VERIFY, SHORT_EXTEND)


def orders(kinds: Sequence[Row], longest: int, sampled: int) -> list[tuple[Row, ...]]:
    """Every order of one or two of these kinds, and `sampled` longer ones of up to `longest`."""
    pick = Random(15)
    every = [rows for n in (1, 2) for rows in product(kinds, repeat=n)]
    every += [tuple(pick.choices(kinds, k=pick.randint(3, longest))) for _ in range(sampled)]
    return [rows for rows in every if any(row.query for row in rows)]


def prefill_tokens(rows: Iterable[Row]) -> int:
    """The number of tokens that count as prompts': those of requests with more than one."""
    return sum(row.query for row in rows if row.query > 1)
