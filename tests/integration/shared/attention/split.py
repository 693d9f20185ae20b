"""The definition of a row's owner, HK or the engine, which looks at one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.integration.shared.attention.rows import DRAFTS, Row

UNREADABLE = "a cache that HK cannot read"
"""The tests' reason for a cache that HK cannot read."""


@dataclass(frozen=True)
class Known:
    """The facts about a batch that HK knows.

    `says`: the engine tells which rows are prompts'. `drafts`: the most that a row may verify.
    `readable`: HK can read the cache.
    """

    says: bool = True
    drafts: int = DRAFTS
    readable: bool = True

    def is_decode(self, row: Row) -> bool:
        """Whether the row is a decode, or may be one for all that HK knows."""
        if row.query == 1 and row.cached:
            return True
        generates = not row.prefilling if self.says else row.cached > 0
        return generates and 0 < row.query <= 1 + self.drafts

    def hks(self, rows: Sequence[Row]) -> list[bool]:
        """Tell for each row whether HK computes it. HK needs one row with several tokens."""
        may = [
            row.query > 0 and not self.is_decode(row) and (self.readable or not row.cached)
            for row in rows
        ]
        worth = any(row.query > 1 for row, its in zip(rows, may, strict=True) if its)
        return [worth and its for its in may]
