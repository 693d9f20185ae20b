"""Which rows of a batch HK computes: pure arithmetic on host numbers, no device, no engine.

A *row* is one request of the batch: its query tokens and how many keys it sees. Engines hand
rows over in any order (vLLM's Model Runner V2 ignores a builder's wishes), so every row is
classified by its own numbers:

    padding  no query token: goes with its neighbours
    decode   one query token, and cached tokens
    fresh    its queries are its whole sequence: keys can be read where they were projected
    extend   several query tokens, and cached tokens: keys must be read from the cache
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]

DECODES_BEHIND = "decode rows behind prefill rows"


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Rows `[first_row, last_row)` are HK's, the rows before them the parent's.

    `tokens`: query tokens of HK's rows that count as prefill. `parent_tokens`: prefill tokens
    left with the parent. `why`: reason for those, empty if there are none. Without rows for HK
    `first_row == last_row`.
    """

    first_row: int
    last_row: int
    first_token: int
    last_token: int
    reads_cache: bool
    tokens: int
    parent_tokens: int
    why: str = ""

    @property
    def delegated(self) -> bool:
        """Whether the whole batch is the parent's."""
        return self.first_row == self.last_row


def prefill_tokens(query_start_loc: Ints) -> int:
    """Query tokens of the rows that have more than one."""
    query_lens = np.diff(query_start_loc)
    return int(query_lens[query_lens > 1].sum())


def split_rows(query_start_loc: Ints, seq_lens: Ints, cache_refusal: str = "") -> RowSplit:
    """Choose HK's rows: all prefill rows, if HK can read the cache or none of them needs it.

    Args:
        query_start_loc: `[rows + 1]`, first token of each row and the end of the last.
        seq_lens: `[rows]`, keys of each row, the new ones included. May be too large on decode
            rows, never on prefill rows.
        cache_refusal: why HK cannot read this cache; empty if it can. Then HK takes the longest
            tail of fresh rows and leaves the extends before it to the parent.
    """
    query_lens = np.diff(query_start_loc)
    multi = query_lens > 1
    total = int(query_lens[multi].sum())
    if not total:
        return _delegate(total, "")
    cached = seq_lens > query_lens
    first = int(multi.argmax())
    if (cached[first:] & (query_lens[first:] == 1)).any():
        return _delegate(total, DECODES_BEHIND)
    extends = np.flatnonzero(multi & cached)
    reads_cache, why = bool(extends.size), ""
    if reads_cache and cache_refusal:
        reads_cache, why = False, cache_refusal
        first = int(extends[-1]) + 1
        if not multi[first:].any():
            return _delegate(total, why)
    last = int(np.flatnonzero(query_lens)[-1]) + 1
    tokens = int(query_lens[first:last][multi[first:last]].sum())
    return RowSplit(
        first_row=first,
        last_row=last,
        first_token=int(query_start_loc[first]),
        last_token=int(query_start_loc[last]),
        reads_cache=reads_cache,
        tokens=tokens,
        parent_tokens=total - tokens,
        why=why,
    )


def _delegate(parent_tokens: int, why: str) -> RowSplit:
    return RowSplit(0, 0, 0, 0, False, 0, parent_tokens, why)
