"""Translates batches of vLLM's runner for HK's planner, and makes batches of the parent's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from vllm.v1.attention.backend import CommonAttentionMetadata

from hk_backend.engine.batch_plan import Batch
from hk_backend.engine.rows import Bools, Selection, to_device


def refuse_batch(batch: Any) -> str:
    """Reason why only the parent can compute a batch; empty if HK may."""
    if batch.causal is not True:
        return "not causal"
    if getattr(batch, "mm_req_doc_ranges", None):
        return "bidirectional ranges in a multimodal prompt"
    if getattr(batch, "rswa_prefix_lens", None) is not None:
        return "reference sliding window"
    if getattr(batch, "encoder_seq_lens", None) is not None:
        return "cross attention"
    if host_seq_lens(batch) is None:
        return "no sequence lengths on the host"
    return ""


def host_seq_lens(batch: Any) -> Any:
    """Keys of each row on the host, without a device sync; exact unless the row verifies drafts."""
    if batch.seq_lens_cpu_upper_bound is not None:
        return batch.seq_lens_cpu_upper_bound
    return batch.seq_lens if batch.seq_lens.device.type == "cpu" else None


def prefilling_rows(batch: Any) -> Bools | None:
    """Whether each row's request still has a prompt to compute; None if the engine does not say."""
    if batch.is_prefilling is None:
        return None
    known = batch.is_prefilling[: batch.num_reqs].numpy()
    rows = np.zeros(batch.num_reqs, dtype=np.bool_)  # the engine may leave out padding
    rows[: len(known)] = known
    return rows


def describe_batch(batch: Any, drafts: int) -> Batch:
    """The batch as HK's planner sees it.

    Args:
        drafts: most draft tokens that a row verifies.
    """
    return Batch(
        batch.query_start_loc_cpu[: batch.num_reqs + 1].numpy(),
        host_seq_lens(batch)[: batch.num_reqs].numpy(),
        batch.seq_lens,
        lambda rows, longest: rows.of_rows(batch.block_table_tensor),
        batch.query_start_loc,
        prefilling_rows(batch),
        drafts,
    )


def batch_of(batch: Any, rows: Selection) -> Any:
    """The batch of `rows` alone, as if the runner had sent only those."""
    starts = rows.starts.astype(np.int32)
    lengths = host_seq_lens(batch)[rows.on_host]
    requests = getattr(batch, "req_idx", None)
    newer = {  # fields that the oldest vLLM supported by HK lacks
        "req_idx": None if requests is None else requests[rows.on_host],
        "_num_computed_tokens_cache": None,
        "_token_to_req_indices_cache": None,
    }
    return batch.replace(
        query_start_loc=to_device(starts, batch.seq_lens.device),
        query_start_loc_cpu=torch.from_numpy(starts),
        seq_lens=rows.of_rows(batch.seq_lens),
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=len(starts) - 1,
        num_actual_tokens=rows.num_tokens,
        max_query_len=int(np.diff(rows.starts).max()),
        max_seq_len=int(lengths.max()),
        block_table_tensor=rows.of_rows(batch.block_table_tensor),
        slot_mapping=rows.of_tokens(batch.slot_mapping),
        positions=None if batch.positions is None else rows.of_tokens(batch.positions),
        is_prefilling=None if batch.is_prefilling is None else batch.is_prefilling[rows.on_host],
        **{name: value for name, value in newer.items() if hasattr(batch, name)},
    )


def one_batch(
    rows: Sequence[tuple[int, int]],
    block_table: torch.Tensor,
    slots: torch.Tensor,
    device: torch.device,
) -> CommonAttentionMetadata:
    """Makes a batch, as the runner would describe it, of requests with prompts to compute.

    Args:
        rows: query and cached tokens of each request.
        block_table: int32 `[rows, max_blocks]`.
        slots: int64, the slot that each new token is written to.
        device: device where the engine computes; the tensors may lie elsewhere.
    """
    query_lens = torch.tensor([query for query, _ in rows], device="cpu")
    starts = torch.zeros(len(rows) + 1, dtype=torch.int32, device="cpu")
    starts[1:] = query_lens.cumsum(0)
    cached = torch.tensor([cached for _, cached in rows], device="cpu")
    lengths = (query_lens + cached).int()
    return CommonAttentionMetadata(
        query_start_loc=starts.to(device, copy=True),
        query_start_loc_cpu=starts,
        seq_lens=lengths.to(device, copy=True),
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=len(rows),
        num_actual_tokens=int(starts[-1]),
        max_query_len=int(query_lens.max()),
        max_seq_len=int(lengths.max()),
        block_table_tensor=block_table.to(device),
        slot_mapping=slots.to(device),
        is_prefilling=query_lens > 1,
    )
