"""Per batch: what HK computes of it, built with the parent's metadata, before any layer runs.

SGLang's scheduler may change its page tables as soon as the metadata of a step is made, so what HK
needs of them is copied here. Nothing here waits for the device: lengths are known on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from hk_backend.engine.attention import Step, plan_step
from hk_backend.engine.evidence import Loss, why_not_step

SERVED_MODES = (ForwardMode.EXTEND, ForwardMode.MIXED)
MODES_OF_THE_PARENT = {
    ForwardMode.TARGET_VERIFY: "speculative verification",
    ForwardMode.DRAFT_EXTEND_V2: "drafting",
    ForwardMode.SPLIT_PREFILL: "prefill split over layers",
    ForwardMode.DLLM_EXTEND: "diffusion",
}


@dataclass(frozen=True)
class Plan:
    """What HK does with one batch.

    With a `refusal` the whole batch is the parent's; otherwise all of it is HK's, decode rows of a
    mixed batch too. `tokens`: its prefill tokens (None: not known on the host). `dummy`: they are
    not a user's.

    `step`: its rows (None: HK serves no layer), with a block table only if some row has cached
    tokens, or if fresh ones are read back; then `window_step` has that of the pool of
    sliding-window layers. `window_slots`: where those layers write.
    """

    batch: Any
    refusal: str = ""
    dummy: bool = False
    tokens: int | None = 0
    num_tokens: int = 0
    has_cached: bool = False
    step: Step | None = None
    window_step: Step | None = None
    window_slots: torch.Tensor | None = None


def plan_batch(
    batch: Any,
    pool: Any,
    req_to_token: torch.Tensor,
    reads_back: bool,
    losses: Sequence[Loss] = (),
    serves: bool = True,
) -> Plan | None:
    """The plan of a `ForwardBatch`; None: it holds no prefill.

    Args:
        pool: the runner's `token_to_kv_pool`.
        req_to_token: `[requests, max_tokens]`, the slot of each token.
        reads_back: whether tokens of the batch itself are read from the pool.
        losses: where SGLang's own attention is faster.
        serves: whether any layer is HK's; if none is, there may be no device to plan for.
    """
    mode = batch.forward_mode
    if mode in (ForwardMode.DECODE, ForwardMode.IDLE):
        return None
    query_lens, cached = batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu
    tokens = None if query_lens is None else sum(n for n in query_lens if n > 1)
    refusal = refuse_batch(batch)
    if refusal:
        return Plan(batch, refusal, tokens=tokens)
    if not tokens:
        return None
    refusal = why_not_step(losses, max(query_lens))
    if refusal:
        return Plan(batch, refusal, tokens=tokens)
    num_tokens, has_cached = sum(query_lens), any(cached)
    if not serves:
        return Plan(batch, tokens=tokens, num_tokens=num_tokens, has_cached=has_cached)
    rows = len(query_lens)
    query_start_loc = torch.zeros(rows + 1, dtype=torch.int32, device=batch.seq_lens.device)
    torch.cumsum(batch.extend_seq_lens[:rows], 0, out=query_start_loc[1:])
    seq_lens = batch.seq_lens[:rows].to(torch.int32)
    to_window = getattr(pool, "translate_loc_from_full_to_swa", None)
    table = window_table = None
    if has_cached or reads_back:
        longest = max(n + c for n, c in zip(query_lens, cached, strict=True))
        slots = page_slots(batch, req_to_token, seq_lens, pool.page_size, longest)
        table = (slots // pool.page_size).to(torch.int32)
        if to_window is not None:
            window_table = (to_window(slots) // pool.page_size).to(torch.int32)
    step = plan_step(query_start_loc, num_tokens, seq_lens, table)
    return Plan(
        batch,
        tokens=tokens,
        num_tokens=num_tokens,
        has_cached=has_cached,
        step=step,
        window_step=None if window_table is None else step.with_block_table(window_table),
        window_slots=None if to_window is None else to_window(batch.out_cache_loc),
    )


def page_slots(
    batch: Any, req_to_token: torch.Tensor, seq_lens: torch.Tensor, page_size: int, longest: int
) -> torch.Tensor:
    """A slot in each page of each row, `[rows, pages]`: that of the page's last token, because a
    sliding window gives slots back from the front."""
    ends = torch.arange(page_size - 1, longest + page_size - 1, page_size, device=seq_lens.device)
    last = (seq_lens.long() - 1).clamp(min=0)
    positions = torch.minimum(ends[None, :], last[:, None])
    return req_to_token[batch.req_pool_indices[: len(seq_lens), None].long(), positions].long()


def refuse_batch(batch: Any) -> str:
    """Batches that only the parent understands."""
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
    if _has_speculative_decodes(batch):
        return "speculative requests in a mixed batch"
    return ""


def _has_speculative_decodes(batch: Any) -> bool:
    """Decode rows whose length the host does not know yet."""
    algorithm = batch.spec_algorithm
    if algorithm is None or algorithm.is_none():
        return False
    rows = zip(batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu, strict=True)
    return any(query == 1 and cached > 0 for query, cached in rows)
