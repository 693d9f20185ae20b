"""Plans batches of decode rows: eager ones, and those that a graph records and replays.

A captured launch reads the same memory at each replay. So the rows of graphs lie in buffers of
HK's own, which SGLang's call before each replay fills. Only as many pages are copied as the longest
request has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hk_backend.engine.batch_plan import Batch, plan_capture, plan_decode
from hk_sglang.attention.batch import PlannedBatch, page_slots


def refuse_decode(batch: Any) -> str:
    """Reason why only the parent can compute a batch of decode rows; empty if HK may."""
    if getattr(batch, "spec_info", None) is not None:
        return "drafting"
    if getattr(batch, "encoder_lens", None) is not None:
        return "an encoder's tokens in front of the prompt"
    if getattr(batch, "tbo_parent_token_range", None) is not None:
        return "two-batch overlap"
    if batch.seq_lens_cpu is None:
        return "no sequence lengths on the host"
    return ""


@dataclass(frozen=True, eq=False)
class GraphRows:
    """Memory for the rows of captured decode batches.

    Args:
        seq_lens: int32 `[most requests]`.
        block_table: int32 `[most requests, most pages of a request]`.
        starts: int32 `[most requests + 1]`, the first token of each row.
        window_table: `block_table` of the pool of sliding-window layers; None: there is none.
        window_slots: int64 `[most requests]`, the slots that these layers write.
    """

    seq_lens: torch.Tensor
    block_table: torch.Tensor
    starts: torch.Tensor
    window_table: torch.Tensor | None
    window_slots: torch.Tensor

    @classmethod
    def of(cls, requests: int, pages: int, device: torch.device, windows: bool) -> GraphRows:
        table = torch.zeros(requests, pages, dtype=torch.int32, device=device)
        return cls(
            torch.zeros(requests, dtype=torch.int32, device=device),
            table,
            torch.arange(requests + 1, dtype=torch.int32, device=device),
            torch.zeros_like(table) if windows else None,
            torch.zeros(requests, dtype=torch.int64, device=device),
        )


class DecodeBatches:
    """Plans of decode batches over one pool and its page tables.

    Args:
        pool: the runner's `token_to_kv_pool`.
        req_to_token: `[requests, max_tokens]`, the slot of each token.
    """

    def __init__(self, pool: Any, req_to_token: torch.Tensor) -> None:
        self._pool, self._req_to_token = pool, req_to_token
        self._graph: GraphRows | None = None
        self._captured: set[int] = set()

    def allocate(self, requests: int) -> None:
        """Allocates the memory for captured batches of up to `requests` rows."""
        pages = -(-self._req_to_token.shape[1] // self._pool.page_size)
        windows = self._to_window is not None
        self._graph = GraphRows.of(requests, pages, self._req_to_token.device, windows)

    @property
    def may_capture(self) -> bool:
        """Whether there is memory for the rows of graphs."""
        return self._graph is not None

    def eager(self, batch: Any) -> PlannedBatch | None:
        """Plans a batch whose layers are called by Python."""
        table, slots = self._pages(batch)
        plan = plan_decode(self._described(batch, batch.seq_lens, table, None))
        if plan is None or plan.decode is None:
            return None
        planned = PlannedBatch(batch, plan, batch.batch_size)
        to_window = self._to_window
        if to_window is None:
            return planned
        window = plan.decode.with_block_table(self._numbers(to_window(slots)))
        place = to_window(batch.out_cache_loc)
        return PlannedBatch(batch, plan, batch.batch_size, None, place, window)

    def captured(self, batch: Any) -> PlannedBatch | None:
        """Plans a batch whose launches a graph records."""
        assert self._graph is not None
        rows, graph = batch.batch_size, self._graph
        self.fill(batch)
        described = self._described(
            batch, graph.seq_lens[:rows], graph.block_table[:rows], graph.starts[: rows + 1]
        )
        plan = plan_capture(described, 1)
        if plan is None:
            return None
        self._captured.add(rows)
        if graph.window_table is None or plan.decode is None:
            return PlannedBatch(batch, plan, rows)
        window = plan.decode.with_block_table(graph.window_table[:rows])
        return PlannedBatch(batch, plan, rows, None, graph.window_slots[:rows], window)

    def is_captured(self, requests: int) -> bool:
        """Whether a graph of `requests` rows has HK's launches."""
        return requests in self._captured

    def fill(self, batch: Any) -> None:
        """Writes a batch's rows to the memory that captured launches read."""
        assert self._graph is not None
        table, slots = self._pages(batch)
        rows, pages = table.shape
        self._graph.seq_lens[:rows].copy_(batch.seq_lens[:rows])
        self._graph.block_table[:rows, :pages].copy_(table)
        if self._graph.window_table is not None:
            window = self._numbers(self._to_window(slots))
            self._graph.window_table[:rows, :pages].copy_(window)
            new = batch.out_cache_loc  # without the rows of padding, which write to slot 0
            self._graph.window_slots[:rows].zero_()[: len(new)].copy_(self._to_window(new))

    @property
    def _to_window(self) -> Any:
        return getattr(self._pool, "translate_loc_from_full_to_swa", None)

    def _pages(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Page numbers of a batch's rows, int32 `[rows, pages]`, and a slot in each.

        Behind a row's last key, slots of one page each are whatever the table holds.
        """
        rows, longest = batch.batch_size, self._longest(batch)
        requests = batch.req_pool_indices[:rows]
        if self._pool.page_size == 1 and self._to_window is None:  # the table is what HK reads
            slots = self._req_to_token[:, :longest].index_select(0, requests)
            return slots, slots
        slots = page_slots(
            requests, self._req_to_token, batch.seq_lens[:rows], self._pool.page_size, longest
        )
        return self._numbers(slots), slots

    def _longest(self, batch: Any) -> int:
        """Most keys of a row, as far as the host knows: before a replay it may not."""
        if batch.seq_lens_cpu is None:
            return getattr(batch, "max_seq_len_host", None) or self._req_to_token.shape[1]
        return max(int(batch.seq_lens_cpu[: batch.batch_size].max()), 1)

    def _numbers(self, slots: torch.Tensor) -> torch.Tensor:
        numbers: torch.Tensor = (slots // self._pool.page_size).int()
        return numbers

    @staticmethod
    def _described(
        batch: Any, seq_lens: torch.Tensor, table: torch.Tensor, starts: torch.Tensor | None
    ) -> Batch:
        rows = batch.batch_size
        return Batch(
            np.arange(rows + 1, dtype=np.int32),
            batch.seq_lens_cpu[:rows].numpy(),
            seq_lens[:rows],
            lambda selected, longest: selected.of_rows(table),
            starts,
        )
