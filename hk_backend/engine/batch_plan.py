"""The plan of one engine step: HK's prefill rows, and the rows of decode, HK's or the parent's.

An engine describes its step as a `Batch`. `plan_batch` decides about its rows and plans HK's, once
and before any layer runs. Each layer's call then takes its tensors and its counters from the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from hk_backend.engine.attention import DECODE, ROUTE, LayerTensors
from hk_backend.engine.rows import (
    Bools,
    Ints,
    RowSplit,
    Selection,
    prefill_tokens,
    select,
    split_rows,
    to_device,
)
from hk_backend.ops import PagedKV
from hk_backend.routing.metrics import count, tally_of
from hk_backend.routing.routes import Outcome, Tally
from hk_backend.terms.attention_step import AttentionStep

Counted = tuple[str, Outcome, int, str]
"""Route, outcome, tokens and reason of a layer's call, as `metrics.count` takes them."""


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
    the others, too, if there is a step `decode` for them. Should that fail, the whole batch is the
    parent's.

    Args:
        dummy: whether this is a call of profiling, warm-up, capture or a contest.
        tokens: HK's prefill tokens.
        left: the parent's prefill tokens, by reason; None: not known on the host.
        reads_cache: whether HK reads its keys from the cache.
        mine: HK's prefill rows; None: there are none.
        step: these rows as a layer's call needs them; None: HK serves no layer.
        others: the other rows; None: there are none.
        parent: `others` in the form that the parent computes them from, beside HK's prefill.
        decode: `others` as a layer's call needs them; None: HK's decode does not compute them.
        left_decode: reason why the parent computes `others`, if decode is a route; else empty.
        decode_tokens: query tokens of `others`.
        captured: whether the plan is that of a graph, for its warm-ups and for the capture itself.
    """

    refusal: str = ""
    dummy: bool = False
    tokens: int = 0
    left: Mapping[str, int] | None = None
    reads_cache: bool = False
    mine: Selection | None = None
    step: AttentionStep | None = None
    others: Selection | None = None
    parent: Any = None
    decode: AttentionStep | None = None
    left_decode: str = ""
    decode_tokens: int = 0
    captured: bool = False
    _tallies: list[tuple[Tally, int]] = field(default_factory=list, init=False, repr=False)

    def count(self, why: str, tokens: int, captured: bool = False) -> None:
        """Counts a call of `tokens` tokens, for each route that has to do with its batch.

        Args:
            why: reason why the parent computes the whole batch; empty if HK computed its rows.
            captured: whether a graph is recording the call now.
        """
        if why or captured:
            for route, outcome, number, reason in self._counted(why, tokens, captured):
                count(route, outcome, number, reason)
            return
        if not self._tallies:  # the same in every layer of the step
            self._tallies.extend(
                (tally_of(route, outcome, reason), number)
                for route, outcome, number, reason in self._counted("", tokens, False)
            )
        for tally, number in self._tallies:
            tally.add(number)

    @property
    def no_request(self) -> bool:
        """Whether the call computes no request's tokens: a warm-up of a graph is one."""
        return self.dummy or self.captured

    def _counted(self, why: str, tokens: int, captured: bool) -> Iterator[Counted]:
        """Yields what a call counts as (see `count`), for each of its routes."""
        if why and (self.mine is not None or self.refusal):
            yield from self._counted_left(why, tokens)
        elif self.mine is not None:
            yield ROUTE, "dummy" if self.dummy else "served", self.tokens, ""
            yield from _fallbacks(self.left or {})
        if self.decode is None and not self.left_decode:
            return
        why = self.left_decode or why
        outcome: Outcome = "captured" if captured else "dummy" if self.no_request else "served"
        yield DECODE, "fallback" if why else outcome, self.decode_tokens, why

    def _counted_left(self, why: str, tokens: int) -> Iterator[Counted]:
        """Yields what a call of `tokens` tokens counts as if the parent computes it.

        If `why` is the plan's own refusal, the reasons in `left` count.
        """
        if self.dummy:
            yield ROUTE, "dummy", tokens, ""
        elif self.left is None:
            yield from _fallbacks({why: tokens})
        else:
            all_tokens = self.tokens + sum(self.left.values())
            yield from _fallbacks(self.left if why == self.refusal else {why: all_tokens})


def _fallbacks(left: Mapping[str, int]) -> Iterator[Counted]:
    for why, tokens in left.items():
        yield ROUTE, "fallback", tokens, why


def left_whole(why: str, starts: Ints | None) -> BatchPlan:
    """The plan of a batch that the parent computes; `starts` is None if the host lacks it."""
    return BatchPlan(why, left=None if starts is None else {why: prefill_tokens(starts)})


def plan_batch(
    batch: Batch,
    cache_refusal: str = "",
    why_slower: Callable[[int], str] | None = None,
    reads_back: bool = False,
    serves: bool = True,
    why_not_decode: Callable[[int, int], str] | None = None,
    decode_is_left: bool = False,
) -> BatchPlan | None:
    """Plans a batch, without waiting for its device; None if HK has nothing to do with it.

    Args:
        cache_refusal: reason why HK cannot read the cache; empty if it can.
        why_slower: for the query tokens of the longest of HK's rows, the reason why the parent is
            faster; empty if HK is. None: not measured.
        reads_back: whether tokens of the batch itself are read from the cache, if HK can read it.
        serves: whether HK serves any layer; if not, the rows are not planned.
        why_not_decode: for a number of decode rows, and the most query tokens of one, the reason
            why the parent computes them; empty if HK does. None: the parent does.
        decode_is_left: whether decode is a route whose layers are all the parent's. They were
            counted once, and no row is.
    """
    starts = batch.starts
    split = split_rows(starts, batch.lengths, batch.is_prefilling, batch.drafts, cache_refusal)
    left_decode = _why_not_decode(split, starts, why_not_decode, cache_refusal)
    decodes = left_decode == "" and bool(split.others.any())
    is_route = decode_is_left or why_not_decode is not None
    left = split.left_by_decode if is_route else split.left
    if not split.tokens and left:
        tokens = int(np.diff(starts)[split.others].sum()) if left_decode else 0
        why = left_decode or ""
        return BatchPlan(next(iter(left)), left=left, left_decode=why, decode_tokens=tokens)
    if not split.tokens and left_decode is None:  # without prefill the parent has its own path
        return None
    if split.tokens and why_slower and (why := why_slower(split.longest)):
        return left_whole(why, starts)
    device = batch.seq_lens.device
    mine, others = (select(rows, starts, device) for rows in (split.mine, split.others))
    reads_cache = split.reads_cache or (reads_back and not cache_refusal)
    step = decode = None
    if mine is not None and serves:
        step = _step_of(batch, mine, reads_cache)
    if decodes and others is not None:
        decode = _step_of(batch, others, True, int(np.diff(others.starts).max()))
    tokens = 0 if others is None else others.num_tokens
    rows = reads_cache, mine, step, others, None, decode, left_decode or "", tokens
    return BatchPlan("", False, split.tokens, left, *rows)


def plan_decode(batch: Batch) -> BatchPlan | None:
    """Plans a batch whose rows are all HK's decode rows; None if it has no row."""
    every = select(np.diff(batch.starts) > 0, batch.starts, batch.seq_lens.device)
    if every is None:
        return None
    step = _step_of(batch, every, True, int(np.diff(every.starts).max()))
    return BatchPlan(others=every, decode=step, decode_tokens=every.num_tokens)


def plan_capture(batch: Batch, max_query_len: int) -> BatchPlan | None:
    """Plans a batch of decode rows whose launches a graph records.

    Every row may have `max_query_len` tokens at a replay, whatever it has now.

    Returns:
        None if they would read copies of the batch's tensors, which the engine does not update
        before a replay.
    """
    most = np.arange(len(batch.starts), dtype=batch.starts.dtype) * max_query_len
    plan = plan_decode(replace(batch, starts=most))
    if plan is None or plan.others is None or plan.decode is None:
        return None
    rows, step = plan.others, plan.decode
    there = batch.query_start_loc, batch.seq_lens, batch.block_table(rows, batch.longest(rows))
    held = step.query_start_loc, step.seq_lens, step.block_table
    for own, engines in zip(held, there, strict=True):
        if own is None or engines is None or own.data_ptr() != engines.data_ptr():
            return None
    return replace(plan, captured=True)


def _why_not_decode(
    split: RowSplit,
    starts: Ints,
    why_not: Callable[[int, int], str] | None,
    cache_refusal: str,
) -> str | None:
    """Reason why the parent computes the rows that HK's prefill does not; empty if HK does.

    Returns:
        None if there are no such rows, or decode is not a route.
    """
    if why_not is None or not split.others.any():
        return None
    longest = int(np.diff(starts)[split.others].max())
    return cache_refusal or why_not(int(split.others.sum()), longest)


def _step_of(
    batch: Batch, rows: Selection, reads_cache: bool, max_query_len: int | None = None
) -> AttentionStep:
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
    known = table, longest, rows.gathered, max_query_len
    return AttentionStep.of(starts, end, seq_lens, *known)


def tensors_of(
    step: AttentionStep, rows: Selection, call: LayerTensors, cache: PagedKV | None
) -> LayerTensors:
    """The tensors of HK's rows in a layer's call: the call's own, or gathered.

    Args:
        step: the `rows`, as planned.
        cache: the layer's cache, if HK reads its keys there.
    """
    query, key, value, out = call
    if cache is not None:
        key, value = cache.key.tensor, cache.value.tensor
    if not step.gathered:
        return query, key, value, out
    if cache is None:
        key, value = rows.of_tokens(key), rows.of_tokens(value)
    return rows.of_tokens(query), key, value, rows.output_for(out)
