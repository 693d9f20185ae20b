"""The plan of one engine step: the rows of HK, and the rows of the parent.

An engine describes its step as a `Batch`. `plan_batch` decides about its rows and plans HK's, once
and before any layer runs. Each layer's call then takes its tensors and its counters from the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hk_backend.engine.attention import ROUTE, LayerTensors
from hk_backend.engine.rows import (
    Bools,
    Ints,
    Selection,
    prefill_tokens,
    select,
    split_rows,
    to_device,
)
from hk_backend.ops import PagedKV
from hk_backend.routing.metrics import count
from hk_backend.terms.prefill_step import PrefillStep


@dataclass(frozen=True, eq=False)
class Batch:
    """The requests of one step, described alike for all engines.

    Args:
        starts: on the host, `[rows + 1]`, the first query token of each row and the end of the
            last.
        lengths: on the host, `[rows]`, the keys of each row (see `split_rows`).
        seq_lens: `[rows]`, the same on the batch's device.
        block_table: returns the cache blocks of some rows, int32 `[rows, max_blocks]`. Its other
            argument is the number of keys of the longest row.
        query_start_loc: int32, `starts` on the batch's device, if the engine has it there.
        is_prefilling, drafts: see `split_rows`.
    """

    starts: Ints
    lengths: Ints
    seq_lens: torch.Tensor
    block_table: Callable[[Selection, int], torch.Tensor]
    query_start_loc: torch.Tensor | None = None
    is_prefilling: Bools | None = None
    drafts: int = 0

    def longest(self, rows: Selection) -> int:
        """Number of keys of the longest of these rows."""
        return int(self.lengths[rows.on_host].max())


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """The division of one batch between HK and the parent.

    With a `refusal` the parent computes the whole batch. Otherwise HK computes the rows `mine`, and
    the parent the rows `theirs`.

    Args:
        dummy: whether this is a call of profiling, warm-up, capture or a contest.
        tokens: HK's prefill tokens.
        left: the parent's prefill tokens, by reason; None: not known on the host.
        reads_cache: whether HK reads its keys from the cache.
        mine: HK's rows.
        step: HK's rows as a layer's call needs them; None: HK serves no layer.
        theirs: the parent's rows; None: there are none.
        parent: `theirs` in the form that the parent computes them from.
    """

    refusal: str = ""
    dummy: bool = False
    tokens: int = 0
    left: Mapping[str, int] | None = None
    reads_cache: bool = False
    mine: Selection | None = None
    step: PrefillStep | None = None
    theirs: Selection | None = None
    parent: Any = None

    def tensors(self, call: LayerTensors, cache: PagedKV | None) -> LayerTensors:
        """The tensors of HK's rows in a layer's call: the call's own, or gathered.

        Args:
            cache: the layer's cache, if HK reads its keys there.
        """
        assert self.step is not None
        query, key, value, out = call
        if cache is not None:
            key, value = cache.key.tensor, cache.value.tensor
        if not self.step.gathered:
            return query, key, value, out
        assert self.mine is not None
        if cache is None:
            key, value = self.mine.of_tokens(key), self.mine.of_tokens(value)
        return self.mine.of_tokens(query), key, value, self.mine.output_for(out)

    def scatter(self, tensors: LayerTensors, out: torch.Tensor) -> None:
        """Writes the results in `tensors` (see there) to their places in a call's `out`."""
        if self.step is not None and self.step.gathered:
            assert self.mine is not None
            self.mine.scatter(tensors[3], out)

    def count_served(self) -> None:
        """Counts a call whose rows `mine` HK has computed."""
        count(ROUTE, "dummy" if self.dummy else "served", self.tokens)
        if self.left:
            _count_left(self.left)

    def count_left(self, why: str, tokens: int) -> None:
        """Counts a call of `tokens` tokens that the parent computes because of `why`.

        If `why` is the plan's own refusal, the reasons in `left` count.
        """
        if self.dummy:
            count(ROUTE, "dummy", tokens)
        elif self.left is None:
            _count_left({why: tokens})
        else:
            all_tokens = self.tokens + sum(self.left.values())
            _count_left(self.left if why == self.refusal else {why: all_tokens})


def _count_left(left: Mapping[str, int]) -> None:
    for why, tokens in left.items():
        count(ROUTE, "fallback", tokens, why)


def left_whole(why: str, starts: Ints | None) -> BatchPlan:
    """The plan of a batch that the parent computes; `starts` is None if the host lacks it."""
    return BatchPlan(why, left=None if starts is None else {why: prefill_tokens(starts)})


def plan_batch(
    batch: Batch,
    cache_refusal: str = "",
    why_slower: Callable[[int], str] | None = None,
    reads_back: bool = False,
    serves: bool = True,
) -> BatchPlan | None:
    """Plans a batch, without waiting for its device; None if the batch holds no prefill.

    Args:
        cache_refusal: reason why HK cannot read the cache; empty if it can.
        why_slower: for the query tokens of the longest of HK's rows, the reason why the parent is
            faster; empty if HK is. None: not measured.
        reads_back: whether tokens of the batch itself are read from the cache, if HK can read it.
        serves: whether HK serves any layer; if not, the rows are not planned.
    """
    starts = batch.starts
    split = split_rows(starts, batch.lengths, batch.is_prefilling, batch.drafts, cache_refusal)
    if not split.tokens:  # HK has no rows, and without prefill the parent has its own path
        return BatchPlan(next(iter(split.left)), left=split.left) if split.left else None
    if why_slower and (why := why_slower(split.longest)):
        return left_whole(why, starts)
    device = batch.seq_lens.device
    mine, theirs = (select(rows, starts, device) for rows in (split.mine, split.theirs))
    assert mine is not None
    reads_cache = split.reads_cache or (reads_back and not cache_refusal)
    step = _step_of(batch, mine, reads_cache) if serves else None
    return BatchPlan("", False, split.tokens, split.left, reads_cache, mine, step, theirs)


def _step_of(batch: Batch, rows: Selection, reads_cache: bool) -> PrefillStep:
    """Plans HK's rows, in place where the engine has them, or gathered."""
    seq_lens = rows.of_rows(batch.seq_lens).int()
    longest = batch.longest(rows)
    table = batch.block_table(rows, longest) if reads_cache else None
    if batch.query_start_loc is not None and isinstance(rows.rows, slice):
        starts = batch.query_start_loc[rows.rows.start : rows.rows.stop + 1]
    else:
        host = (rows.starts + rows.first_token).astype(np.int32)
        starts = to_device(host, seq_lens.device)
    end = rows.first_token + rows.num_tokens
    return PrefillStep.of(starts, end, seq_lens, table, longest, rows.gathered)
