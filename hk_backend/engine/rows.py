"""Decides which rows of a batch HK's prefill computes, each by its kind, in any order.

A *row* is one request of the batch: its query tokens and the number of keys that it sees.

`padding`: a row without a query token, which belongs to no request.
`decode`: a row with one query token, and cached tokens.
`speculative`: a decode row with drafts to verify, at most 1 + drafts query tokens.
`fresh`: a row whose queries are its whole sequence. Its keys can be read where they were
    projected.
`extend`: any other row with cached tokens. Its keys must be read from the cache.

HK's prefill computes fresh rows, and extends if it can read the cache. The other rows are for HK's
decode, or for the parent. A short extend, the end of a prompt's last chunk, looks like a
speculative row. The engine tells which of them it is; if it does not, the row counts as
speculative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]

SPECULATIVE = "speculative verification"


@dataclass(frozen=True, slots=True)
class RowSplit:
    """A batch split into the rows of HK's prefill and the others.

    Args:
        mine, others: bool `[rows]`, rows of HK's prefill and the others; padding is in neither.
        tokens: query tokens of HK's rows that count as prefill; 0: HK has nothing to compute.
        left: such tokens of the parent's rows, by reason.
        longest: query tokens of the longest of HK's rows.
        reads_cache: whether one of HK's rows has cached keys.
    """

    mine: Bools
    others: Bools
    tokens: int
    left: Mapping[str, int]
    longest: int
    reads_cache: bool

    @property
    def left_by_decode(self) -> Mapping[str, int]:
        """`left` without speculative rows, which belong to decode if that is a route."""
        return {why: tokens for why, tokens in self.left.items() if why != SPECULATIVE}


def prefill_tokens(query_start_loc: Ints) -> int:
    """Number of query tokens of the rows that have more than one."""
    query_lens = np.diff(query_start_loc)
    return int(query_lens[query_lens > 1].sum())


def split_rows(
    query_start_loc: Ints,
    seq_lens: Ints,
    is_prefilling: Bools | None = None,
    drafts: int = 0,
    cache_refusal: str = "",
) -> RowSplit:
    """Splits a batch between HK and the parent.

    Args:
        query_start_loc: `[rows + 1]`, first token of each row and the end of the last.
        seq_lens: `[rows]`, keys of each row, the new ones included. May be too large for decode and
            speculative rows, never for others.
        is_prefilling: `[rows]`, whether the row's request still has prompt tokens to compute; None:
            the engine does not say.
        drafts: most draft tokens that a row verifies.
        cache_refusal: reason why HK cannot read this cache; empty if it can.
    """
    query_lens = np.diff(query_start_loc)
    cached = seq_lens > query_lens
    generating = cached if is_prefilling is None else ~is_prefilling
    decode = generating & (query_lens <= 1 + drafts) | cached & (query_lens == 1)
    present, multi = query_lens > 0, query_lens > 1
    extends = cached & ~decode
    mine = present & ~decode
    left = {SPECULATIVE: decode}
    if cache_refusal:
        mine &= ~extends
        left[cache_refusal] = extends
    if not (mine & multi).any():  # prompts of one token are not worth a launch of their own
        mine[:] = False
    counted = {why: int(query_lens[rows & multi].sum()) for why, rows in left.items()}
    return RowSplit(
        mine,
        present & ~mine,
        int(query_lens[mine & multi].sum()),
        {why: tokens for why, tokens in counted.items() if tokens},
        int(query_lens[mine].max(initial=0)),
        bool((mine & extends).any()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Some rows of a batch and their tokens: in place if the tokens are adjacent, else gathered.

    Args:
        rows, tokens: slices, or int64 indices on the batch's device.
        on_host: the rows, for tensors on the host.
        starts: `[selected rows + 1]`, first token of each among the selected.
    """

    rows: slice | torch.Tensor
    tokens: slice | torch.Tensor
    on_host: slice | Ints
    starts: Ints

    @property
    def gathered(self) -> bool:
        return not isinstance(self.tokens, slice)

    @property
    def first_token(self) -> int:
        """Place of the first token, in the batch or among the gathered."""
        return self.tokens.start if isinstance(self.tokens, slice) else 0

    @property
    def leads(self) -> bool:
        """Whether the tokens are in place and the first of the batch."""
        return not self.gathered and self.first_token == 0

    @property
    def num_tokens(self) -> int:
        return int(self.starts[-1])

    def of_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """These rows' entries of `tensor`, a per-row tensor of the batch: a view, or a copy."""
        return _of(tensor, self.rows)

    def of_tokens(self, tensor: torch.Tensor) -> torch.Tensor:
        """These tokens' entries of `tensor`, a per-token tensor of the batch: a view, or a copy."""
        return _of(tensor, self.tokens)

    def output_for(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory for the results of these tokens: a view of `tensor`, or a new tensor."""
        if isinstance(self.tokens, slice):
            return tensor[self.tokens]
        return tensor.new_empty(self.num_tokens, *tensor.shape[1:])

    def scatter(self, part: torch.Tensor, tensor: torch.Tensor) -> None:
        """Writes results from `output_for` to their places in `tensor`; a view is already there."""
        if not isinstance(self.tokens, slice):
            tensor.index_copy_(0, self.tokens, part)


def select(chosen: Bools, query_start_loc: Ints, device: torch.device) -> Selection | None:
    """Selects the rows that are `chosen`; None if there are none.

    Args:
        chosen: bool `[rows]`.
        query_start_loc: `[rows + 1]`, see `split_rows`.
        device: device of the batch. It gets indices if other rows' tokens lie between the chosen.
    """
    indices = np.flatnonzero(chosen)
    if not indices.size:
        return None
    query_lens = np.diff(query_start_loc)
    first, last = int(indices[0]), int(indices[-1]) + 1
    begin, end = int(query_start_loc[first]), int(query_start_loc[last])
    if end - begin == query_lens[indices].sum():  # only padding lies between the rows
        rows = slice(first, last)
        starts = query_start_loc[first : last + 1] - begin
        return Selection(rows, slice(begin, end), rows, starts)
    starts = np.concatenate([[0], query_lens[indices].cumsum()])
    tokens = np.flatnonzero(np.repeat(chosen, query_lens)) + int(query_start_loc[0])
    return Selection(to_device(indices, device), to_device(tokens, device), indices, starts)


def to_device(numbers: Ints, device: torch.device) -> torch.Tensor:
    """A copy of host numbers on `device`, without waiting."""
    host = torch.from_numpy(numbers)
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)


def _of(tensor: torch.Tensor, where: slice | torch.Tensor) -> torch.Tensor:
    return tensor[where] if isinstance(where, slice) else tensor.index_select(0, where)
