"""Describes a batch of SGLang's for HK's planner, before any layer runs.

SGLang's scheduler may change its page tables once the metadata of a step is made, so HK copies what
it needs of them here. Nothing waits for the device, as lengths are known on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode

from hk_backend.engine.batch_plan import Batch, BatchPlan, left_whole, plan_batch
from hk_backend.engine.rows import SPECULATIVE, Selection
from hk_backend.terms.attention_step import AttentionStep

SERVED_MODES = (ForwardMode.EXTEND, ForwardMode.MIXED)
MODES_OF_THE_PARENT = {
    ForwardMode.TARGET_VERIFY: SPECULATIVE,
    ForwardMode.DRAFT_EXTEND_V2: "drafting",
    ForwardMode.SPLIT_PREFILL: "prefill split over layers",
    ForwardMode.DLLM_EXTEND: "diffusion",
}


@dataclass(frozen=True, eq=False)
class PlannedBatch:
    """A `ForwardBatch` with its plan.

    Args:
        num_tokens: tokens of the whole batch, without padding.
        window_step: `plan.step` with the block table of the pool of sliding-window layers.
        window_slots: slots that sliding-window layers write.
        window_decode: `plan.decode` with the block table of that pool.
    """

    batch: Any
    plan: BatchPlan
    num_tokens: int = 0
    window_step: AttentionStep | None = None
    window_slots: torch.Tensor | None = None
    window_decode: AttentionStep | None = None


def plan_forward_batch(
    batch: Any, pool: Any, req_to_token: torch.Tensor, off: str = "", **plan_arguments: Any
) -> PlannedBatch | None:
    """Plans a `ForwardBatch` of prefill, which may have decode rows; None for any other.

    Args:
        pool: the runner's `token_to_kv_pool`.
        req_to_token: `[requests, max_tokens]`, the slot of each token.
        off: reason why the route is switched off; empty if it is on.
        plan_arguments: those of `plan_batch`.
    """
    if batch.forward_mode in (ForwardMode.DECODE, ForwardMode.IDLE):
        return None
    query_lens = batch.extend_seq_lens_cpu
    starts = None if query_lens is None else np.cumsum([0, *query_lens])
    refusal = off or refuse_batch(batch)
    if refusal:
        return PlannedBatch(batch, left_whole(refusal, starts))
    assert starts is not None  # as `refuse_batch` holds
    pages = PageTable(batch, pool, req_to_token)
    lengths = np.diff(starts) + np.array(batch.extend_prefix_lens_cpu)
    # rows that verify drafts come in batches with a mode of their own
    plan = plan_batch(Batch(starts, lengths, pages.seq_lens, pages.of_rows), **plan_arguments)
    if plan is None:
        return None
    to_window = getattr(pool, "translate_loc_from_full_to_swa", None)
    window_step = window_slots = window_decode = None
    if to_window is not None and (plan.step is not None or plan.decode is not None):
        window_slots = to_window(batch.out_cache_loc)
        if plan.reads_cache and plan.step is not None and plan.mine is not None:
            table = pages.numbers(to_window(pages.slots_of(plan.mine)))
            window_step = plan.step.with_block_table(table)
        if plan.decode is not None and plan.others is not None:
            table = pages.numbers(to_window(pages.slots_of(plan.others)))
            window_decode = plan.decode.with_block_table(table)
    windows = window_step, window_slots, window_decode
    return PlannedBatch(batch, plan, int(starts[-1]), *windows)


def one_batch(
    rows: Sequence[tuple[int, int]],
    requests: torch.Tensor,
    slots: torch.Tensor,
    mode: ForwardMode | None = None,
) -> ForwardBatch:
    """Makes a batch, as a scheduler does, of requests without a place in the server.

    Args:
        rows: query and cached tokens of each request.
        requests: int64, the row of each request in the page table.
        slots: int64, the slot that each new token is written to.
        mode: None: that of a batch of prefill with these rows.
    """
    queries, cached = [query for query, _ in rows], [cached for _, cached in rows]
    decodes = any(query == 1 and more for query, more in rows)
    lengths = torch.tensor([query + more for query, more in rows])
    query_lens = torch.tensor(queries, dtype=torch.int32, device=slots.device)
    positions = torch.cat([torch.arange(more, more + query) for query, more in rows])
    return ForwardBatch(
        forward_mode=mode or (ForwardMode.MIXED if decodes else ForwardMode.EXTEND),
        batch_size=len(rows),
        input_ids=torch.zeros_like(slots),
        req_pool_indices=requests,
        seq_lens=lengths.to(slots.device),
        seq_lens_cpu=lengths,
        seq_lens_sum=int(lengths.sum()),
        out_cache_loc=slots,
        positions=positions.to(slots.device),
        extend_num_tokens=len(slots),
        extend_seq_lens=query_lens,
        extend_prefix_lens=torch.tensor(cached, dtype=torch.int32, device=slots.device),
        extend_start_loc=query_lens.cumsum(0, dtype=torch.int32) - query_lens,
        extend_seq_lens_cpu=queries,
        extend_prefix_lens_cpu=cached,
    )


class PageTable:
    """The pages of a batch's requests.

    Attributes:
        seq_lens: `[rows]`, keys of each row.
    """

    def __init__(self, batch: Any, pool: Any, req_to_token: torch.Tensor) -> None:
        rows = len(batch.extend_seq_lens_cpu)
        self.seq_lens: torch.Tensor = batch.seq_lens[:rows]
        self._requests = batch.req_pool_indices[:rows]
        self._page_size, self._req_to_token = pool.page_size, req_to_token
        self._slots: dict[int, torch.Tensor] = {}

    def of_rows(self, rows: Selection, longest: int) -> torch.Tensor:
        """Page numbers of these rows, int32 `[rows, max_pages]`."""
        requests, seq_lens = rows.of_rows(self._requests), rows.of_rows(self.seq_lens)
        lengths = seq_lens.to(torch.int32)
        slots = page_slots(requests, self._req_to_token, lengths, self._page_size, longest)
        self._slots[id(rows)] = slots
        return self.numbers(slots)

    def slots_of(self, rows: Selection) -> torch.Tensor:
        """A slot in each page of rows whose pages were asked for (see `page_slots`)."""
        return self._slots[id(rows)]

    def numbers(self, slots: torch.Tensor) -> torch.Tensor:
        """Numbers of the pages that hold `slots`."""
        pages: torch.Tensor = slots // self._page_size
        return pages.to(torch.int32)


def page_slots(
    requests: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    page_size: int,
    longest: int,
) -> torch.Tensor:
    """A slot in each page of each row, `[rows, pages]`.

    The slot is that of the page's last token, as a sliding window returns slots from the front.
    """
    ends = torch.arange(page_size - 1, longest + page_size - 1, page_size, device=seq_lens.device)
    last = (seq_lens.long() - 1).clamp(min=0)
    positions = torch.minimum(ends[None, :], last[:, None])
    return req_to_token[requests[:, None].long(), positions].long()


def refuse_call(
    planned: PlannedBatch,
    tokens: int,
    q: torch.Tensor,
    k: torch.Tensor | None,
    extra: dict[str, Any],
    dtype: torch.dtype,
) -> str:
    """Reason why HK does not take a call as it is (see `HKAttention.attend`); empty if it does.

    Args:
        tokens: rows of `q`.
        dtype: dtype of the model's activations.
    """
    if k is None:
        return "no keys handed over"
    if tokens < planned.num_tokens or k.shape[0] != tokens:
        return "queries or keys of other tokens than the batch's"
    if q.dtype is not dtype or k.dtype is not dtype:
        return f"query in {q.dtype}, keys in {k.dtype}"
    if not extra:
        return ""
    given = [name for name, value in extra.items() if value is not None and name != "sinks"]
    return f"argument {given[0]} of the call" if given else ""


def refuse_batch(batch: Any) -> str:
    """Reason why only the parent can compute a batch; empty if HK may."""
    mode = batch.forward_mode
    if mode not in SERVED_MODES:
        return MODES_OF_THE_PARENT.get(mode, f"forward mode {mode.name}")
    if batch.encoder_lens is not None:
        return "an encoder's tokens in front of the prompt"
    if any(found is not None for found in batch.multi_item_delimiter_indices or ()):
        return "several items scored in one prompt"
    if any(found is not None for found in getattr(batch, "decision_layouts", None) or ()):
        return "several decisions in one prompt"
    if batch.attn_cp_metadata is not None:
        return "context parallelism"
    if batch.tbo_parent_token_range is not None:
        return "two-batch overlap"
    if getattr(batch, "mha_return_lse", False):
        return "log-sum-exp asked for"
    if batch.extend_seq_lens_cpu is None or batch.extend_prefix_lens_cpu is None:
        return "no sequence lengths on the host"
    return ""
