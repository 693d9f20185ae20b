"""Plans per batch which rows HK computes, with the parent's metadata and before any layer runs.

SGLang's scheduler may change its page tables once the metadata of a step is made, so HK copies what
it needs of them here. Nothing waits for the device, as lengths are known on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from hk_backend.engine.attention import plan_step
from hk_backend.engine.rows import Selection, prefill_tokens, select, split_rows
from hk_backend.terms.prefill_step import PrefillStep

SERVED_MODES = (ForwardMode.EXTEND, ForwardMode.MIXED)
MODES_OF_THE_PARENT = {
    ForwardMode.TARGET_VERIFY: "speculative verification",
    ForwardMode.DRAFT_EXTEND_V2: "drafting",
    ForwardMode.SPLIT_PREFILL: "prefill split over layers",
    ForwardMode.DLLM_EXTEND: "diffusion",
}


@dataclass(frozen=True)
class Plan:
    """HK's part in one batch.

    With a `refusal` the parent computes the whole batch. Otherwise HK computes the rows `mine`, and
    the parent the rows `theirs`.

    Args:
        dummy: whether the tokens are not a user's.
        tokens: HK's prefill tokens.
        left: the parent's prefill tokens, by reason; None: not known on the host.
        num_tokens: tokens of the whole batch, without padding.
        paged: whether HK reads its keys from the pool.
        mine: HK's rows.
        step: plan of HK's rows, with a block table only if `paged`; None: HK serves no layer.
        window_step: `step` with the block table of the pool of sliding-window layers.
        window_slots: slots that sliding-window layers write.
        theirs: the parent's rows; None: there are none.
    """

    batch: Any
    refusal: str = ""
    dummy: bool = False
    tokens: int = 0
    left: Mapping[str, int] | None = None
    num_tokens: int = 0
    paged: bool = False
    mine: Selection | None = None
    step: PrefillStep | None = None
    window_step: PrefillStep | None = None
    window_slots: torch.Tensor | None = None
    theirs: Selection | None = None

    def left_because(self, why: str, tokens: int) -> Mapping[str, int]:
        """Prefill tokens of a call that the parent computes, by reason.

        The reason is `why`, or that of the rows. `tokens` are the call's tokens.
        """
        if self.left is None:
            return {why: tokens}
        return self.left if why == self.refusal else {why: self.tokens + sum(self.left.values())}


def plan_batch(
    batch: Any,
    pool: Any,
    req_to_token: torch.Tensor,
    reads_back: bool,
    why_slower: Callable[[int], str] | None = None,
    serves: bool = True,
    cache_refusal: str = "",
    off: str = "",
) -> Plan | None:
    """Plans a `ForwardBatch`; None if it holds no prefill.

    Args:
        pool: the runner's `token_to_kv_pool`.
        req_to_token: `[requests, max_tokens]`, the slot of each token.
        reads_back: whether tokens of the batch itself are read from the pool, if HK can read it.
        why_slower: for the tokens of the longest prompt, the reason why SGLang is faster in all
            layers; empty if HK is faster in some. None: not measured.
        serves: whether HK serves any layer; if not, there may be no device to plan for.
        cache_refusal: reason why HK cannot read the pool; empty if it can.
        off: reason why the route is switched off; empty if it is on.
    """
    if batch.forward_mode in (ForwardMode.DECODE, ForwardMode.IDLE):
        return None
    query_lens, cached = batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu
    starts = np.cumsum([0, *(query_lens or ())])
    refusal = off or refuse_batch(batch)
    if refusal:
        known = query_lens is not None
        return Plan(batch, refusal, left={refusal: prefill_tokens(starts)} if known else None)
    # rows that verify drafts come in batches with a mode of their own
    split = split_rows(starts, np.diff(starts) + np.array(cached), cache_refusal=cache_refusal)
    if not split.tokens:
        return Plan(batch, next(iter(split.left)), left=split.left) if split.left else None
    refusal = why_slower(split.longest) if why_slower else ""
    if refusal:
        return Plan(batch, refusal, left={refusal: prefill_tokens(starts)})
    device = batch.seq_lens.device
    mine, theirs = (select(rows, starts, device) for rows in (split.mine, split.theirs))
    assert mine is not None
    plan = Plan(
        batch,
        tokens=split.tokens,
        left=split.left,
        num_tokens=int(starts[-1]),
        paged=split.reads_cache or (reads_back and not cache_refusal),
        mine=mine,
        theirs=theirs,
    )
    return _with_steps(plan, pool, req_to_token) if serves else plan


def _with_steps(plan: Plan, pool: Any, req_to_token: torch.Tensor) -> Plan:
    """Adds HK's rows on the device to the plan."""
    batch, mine = plan.batch, plan.mine
    assert mine is not None
    rows = len(batch.extend_seq_lens_cpu)
    query_lens = mine.of_rows(batch.extend_seq_lens[:rows])
    starts = torch.zeros(len(query_lens) + 1, dtype=torch.int32, device=query_lens.device)
    torch.cumsum(query_lens, 0, out=starts[1:])
    end = mine.num_tokens
    if isinstance(mine.tokens, slice):
        starts += mine.tokens.start
        end = mine.tokens.stop
    seq_lens = mine.of_rows(batch.seq_lens[:rows]).to(torch.int32)
    to_window = getattr(pool, "translate_loc_from_full_to_swa", None)
    table = window_table = longest = None
    if plan.paged:
        requests = mine.of_rows(batch.req_pool_indices[:rows])
        lengths = np.add(batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu)
        longest = int(lengths[mine.on_host].max())
        slots = page_slots(requests, req_to_token, seq_lens, pool.page_size, longest)
        table = (slots // pool.page_size).to(torch.int32)
        if to_window is not None:
            window_table = (to_window(slots) // pool.page_size).to(torch.int32)
    step = plan_step(starts, end, seq_lens, table, longest, mine.gathered)
    return replace(
        plan,
        step=step,
        window_step=None if window_table is None else step.with_block_table(window_table),
        window_slots=None if to_window is None else to_window(batch.out_cache_loc),
    )


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
