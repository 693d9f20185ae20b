"""Plans batches of decode rows: eager ones, and those that a graph records and replays.

A row has one query token, or one and its drafts (see `drafts`). A captured launch reads the same
memory at each replay. So the rows of graphs lie in buffers of HK's own, which SGLang's call before
each replay fills. Only as many pages are copied as the longest request has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from hk_backend.engine.batch_plan import Batch, plan_capture, plan_decode
from hk_sglang.attention.batch import PlannedBatch, page_slots
from hk_sglang.attention.drafts import NOT_A_STEP, DraftStep, all_keys, query_tokens


@dataclass(frozen=True, eq=False)
class GraphRows:
    """Memory for the rows of captured decode batches.

    Args:
        tokens: query tokens of each row.
        seq_lens: int32 `[most requests]`, all keys of each row.
        block_table: int32 `[most requests, most pages of a request]`.
        starts: int32 `[most requests + 1]`, the first token of each row.
        window_table: `block_table` of the pool of sliding-window layers; None: there is none.
        window_slots: int64 `[most requests * tokens]`, the slots that these layers write.
    """

    tokens: int
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    starts: torch.Tensor
    window_table: torch.Tensor | None
    window_slots: torch.Tensor

    @classmethod
    def of(
        cls, requests: int, tokens: int, pages: int, device: torch.device, windows: bool
    ) -> GraphRows:
        table = torch.zeros(requests, pages, dtype=torch.int32, device=device)
        return cls(
            tokens,
            torch.zeros(requests, dtype=torch.int32, device=device),
            table,
            torch.arange(requests + 1, dtype=torch.int32, device=device) * tokens,
            torch.zeros_like(table) if windows else None,
            torch.zeros(requests * tokens, dtype=torch.int64, device=device),
        )


class DecodeBatches:
    """Plans of decode batches over one pool and its page tables.

    Args:
        pool: the runner's `token_to_kv_pool`.
        req_to_token: `[requests, max_tokens]`, the slot of each token.
        step: the step of a draft model whose batches these are.
        first: the first step's batches, which have the same page tables; None: this is it.
    """

    def __init__(
        self,
        pool: Any,
        req_to_token: torch.Tensor,
        step: DraftStep = NOT_A_STEP,
        first: DecodeBatches | None = None,
    ) -> None:
        self._pool, self._req_to_token = pool, req_to_token
        self._step, self._first = step, first
        self._graph: GraphRows | None = None
        self._captured: set[int] = set()

    def allocate(self, requests: int, tokens: int) -> None:
        """Allocates the memory for captured batches of up to `requests` rows of `tokens` tokens.

        The first step of a draft model does so before the others, which take its tables.
        """
        if self._first is not None:
            if (theirs := self._first._graph) is not None:
                self._graph = replace(theirs, seq_lens=torch.zeros_like(theirs.seq_lens))
            return
        pages = -(-self._req_to_token.shape[1] // self._pool.page_size)
        windows = self._to_window is not None
        self._graph = GraphRows.of(requests, tokens, pages, self._req_to_token.device, windows)

    def may_capture(self, tokens: int) -> bool:
        """Whether there is memory for graphs whose rows have `tokens` query tokens."""
        return self._graph is not None and self._graph.tokens == tokens

    def eager(self, batch: Any) -> PlannedBatch | None:
        """Plans a batch whose layers are called by Python."""
        tokens = query_tokens(batch)
        seq_lens = self._seq_lens(batch, tokens, self._step.ahead)
        table, slots = self._pages(batch, tokens)
        plan = plan_decode(self._described(batch, seq_lens, table, None, tokens))
        if plan is None or plan.decode is None:
            return None
        planned = PlannedBatch(batch, plan, plan.decode_tokens)
        to_window = self._to_window
        if to_window is None:
            return planned
        window = plan.decode.with_block_table(self._numbers(to_window(slots)))
        place = to_window(batch.out_cache_loc)
        return replace(planned, window_slots=place, window_decode=window)

    def captured(self, batch: Any) -> PlannedBatch | None:
        """Plans a batch whose launches a graph records."""
        assert self._graph is not None
        rows, graph = batch.batch_size, self._graph
        self.fill(batch)
        own = graph.seq_lens[:rows], graph.block_table[:rows], graph.starts[: rows + 1]
        plan = plan_capture(self._described(batch, *own, graph.tokens), graph.tokens)
        if plan is None:
            return None
        self._captured.add(rows)
        planned = PlannedBatch(batch, plan, plan.decode_tokens)
        if graph.window_table is None or plan.decode is None:
            return planned
        window = plan.decode.with_block_table(graph.window_table[:rows])
        place = graph.window_slots[: plan.decode_tokens]
        return replace(planned, window_slots=place, window_decode=window)

    def is_captured(self, requests: int) -> bool:
        """Whether a graph of `requests` rows has HK's launches."""
        return requests in self._captured

    def fill(self, batch: Any) -> None:
        """Writes a batch's rows to the memory that captured launches read.

        The batch may be without drafts, if a rank replays a graph for others' sake. The first step
        of a draft model fills the tables of all, which are as long as the last one needs.
        """
        assert self._graph is not None
        tokens = self._graph.tokens
        seq_lens = self._seq_lens(batch, tokens, self._step.ahead)
        self._graph.seq_lens[: len(seq_lens)].copy_(seq_lens)
        if self._first is not None:
            return
        table, slots = self._pages(batch, tokens)
        rows, pages = table.shape
        self._graph.block_table[:rows, :pages].copy_(table)
        if self._graph.window_table is not None:
            window = self._numbers(self._to_window(slots))
            self._graph.window_table[:rows, :pages].copy_(window)
            new = batch.out_cache_loc  # without the rows of padding, which write to slot 0
            place = self._graph.window_slots[: rows * tokens].zero_()
            place[: len(new)].copy_(self._to_window(new))

    @property
    def _to_window(self) -> Any:
        return getattr(self._pool, "translate_loc_from_full_to_swa", None)

    def _seq_lens(self, batch: Any, tokens: int, ahead: int) -> torch.Tensor:
        """All keys of each row, `[rows]` (see `all_keys`)."""
        seq_lens: torch.Tensor = batch.seq_lens[: batch.batch_size]
        return all_keys(batch, seq_lens, tokens, ahead)

    def _pages(self, batch: Any, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Page numbers of a batch's rows, int32 `[rows, pages]`, and a slot in each.

        They are those of all steps. Behind a row's last key, slots of one page each are whatever
        the table holds.

        Args:
            tokens: query tokens of each row.
        """
        longest = self._longest(batch, tokens)
        requests = batch.req_pool_indices[: batch.batch_size]
        if self._pool.page_size == 1 and self._to_window is None:  # the table is what HK reads
            slots = self._req_to_token[:, :longest].index_select(0, requests)
            return slots, slots
        seq_lens = self._seq_lens(batch, tokens, self._step.most)
        slots = page_slots(requests, self._req_to_token, seq_lens, self._pool.page_size, longest)
        return self._numbers(slots), slots

    def _longest(self, batch: Any, tokens: int) -> int:
        """Most keys of a row, as far as the host knows: before a replay it may not."""
        most = int(self._req_to_token.shape[1])
        if batch.seq_lens_cpu is not None:
            known = int(batch.seq_lens_cpu[: batch.batch_size].max())
        else:
            known = getattr(batch, "max_seq_len_host", None) or most
            if batch.forward_mode.is_draft_extend_v2():  # this number is from before the drafts
                known += tokens
        return min(max(all_keys(batch, known, tokens, self._step.most), 1), most)

    def _numbers(self, slots: torch.Tensor) -> torch.Tensor:
        numbers: torch.Tensor = (slots // self._pool.page_size).int()
        return numbers

    def _described(
        self,
        batch: Any,
        seq_lens: torch.Tensor,
        table: torch.Tensor,
        starts: torch.Tensor | None,
        tokens: int,
    ) -> Batch:
        rows = batch.batch_size
        return Batch(
            np.arange(rows + 1, dtype=np.int32) * tokens,
            all_keys(batch, batch.seq_lens_cpu[:rows], tokens, self._step.most).numpy(),
            seq_lens,
            lambda selected, longest: selected.of_rows(table),
            starts,
        )
