"""Whose a row is: the definition, which looks at one row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.integration.shared.attention.rows import DRAFTS, Row

UNREADABLE = "a cache that HK cannot read"
"""The reason that tests give of one."""


@dataclass(frozen=True)
class Known:
    """What is known of a batch: whether the engine `says` which rows are prompts', the `drafts`
    that a row may verify, and whether HK can read the cache."""

    says: bool = True
    drafts: int = DRAFTS
    readable: bool = True

    def is_decode(self, row: Row) -> bool:
        """Or may be one, for all that is known."""
        if row.query == 1 and row.cached:
            return True
        generates = not row.prefilling if self.says else row.cached > 0
        return generates and 0 < row.query <= 1 + self.drafts

    def hks(self, rows: Sequence[Row]) -> list[bool]:
        """Which rows HK computes: those that it may, if one of them has several tokens."""
        may = [
            row.query > 0 and not self.is_decode(row) and (self.readable or not row.cached)
            for row in rows
        ]
        worth = any(row.query > 1 for row, its in zip(rows, may, strict=True) if its)
        return [worth and its for its in may]
