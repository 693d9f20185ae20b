"""vLLM's Triton attention: the kernels of TRITON_ATTN and of ROCM_ATTN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.attention import StockAttention, steps_of
from hk_backend.lab.stock.batches import ROWS, SPLIT, Batch, new_tokens
from hk_backend.terms.attention_arguments import AttentionArguments

UNIFIED_ROWS = 16
"""Rows of a workgroup of TRITON_ATTN: tokens times the query heads of a KV head."""
UNIFIED_KEYS = 32
"""Keys in a step of its loop, with prefill in bf16 (`_get_tile_size`)."""
PREFIX_ROWS, PREFIX_KEYS = 128, 64
"""Tokens of a workgroup of ROCM_ATTN's prefill kernel, and keys in a step of its loop."""


def run_unified(given: AttentionArguments, **more: Any) -> None:
    """Attention as TRITON_ATTN calls it (v1/attention/backends/triton_attn.py).

    `more`: buffers with which a step of decodes shares a request's keys among workgroups.
    """
    module = import_module("vllm.v1.attention.ops.triton_unified_attention")
    assert given.paged_kv is not None
    assert given.seq_lens is not None
    ones = torch.ones(len(given.seq_lens), given.paged_kv.num_kv_heads)
    scaled = isinstance(given.k_scale, torch.Tensor)
    k_descale, v_descale = (
        (scale * ones if scaled else ones) for scale in (given.k_scale, given.v_scale)
    )
    window = given.sliding_window
    modes = import_module("vllm.v1.kv_cache_interface").KVQuantMode
    module.unified_attention(
        q=given.query,
        k=given.paged_kv.key.tensor,
        v=given.paged_kv.value.tensor,
        out=given.out,
        cu_seqlens_q=given.query_start_loc,
        max_seqlen_q=int(given.query_start_loc.diff().max()),
        seqused_k=given.seq_lens,
        max_seqlen_k=int(given.seq_lens.max()),
        softmax_scale=given.query.shape[2] ** -0.5,
        causal=True,
        window_size=(window - 1, 0) if window else (-1, -1),
        block_table=given.block_table,
        softcap=given.logits_soft_cap or 0,
        q_descale=None,
        k_descale=k_descale,
        v_descale=v_descale,
        sinks=given.sinks,
        **({"kv_quant_mode": modes.FP8_PER_TENSOR} if scaled else {}),
        **more,
    )


def unified_work(batch: Batch, grid: Sequence[int]) -> NDArray[np.float64]:
    """Steps of each workgroup of TRITON_ATTN: blocks of tokens, then KV heads.

    Each request has a block more than it may need, since the host does not know the lengths.
    """
    tokens = UNIFIED_ROWS // (batch.heads // batch.kv_heads)
    steps = np.zeros(grid[0])
    start = 0
    for request, (new, total) in enumerate(zip(batch.queries, batch.keys, strict=True)):
        first = start // tokens + request
        begins = np.arange(0, new, tokens)
        own = steps_of(batch, begins, tokens, new, total, UNIFIED_KEYS)
        steps[first : first + len(own)] = own
        start += new
    return np.tile(steps, grid[1])


def run_prefix_prefill(given: AttentionArguments) -> None:
    """Prefill as ROCM_ATTN calls it; the new keys lie in the cache and beside it."""
    module = import_module("vllm.v1.attention.ops.prefix_prefill")
    assert given.paged_kv is not None
    assert given.seq_lens is not None
    keys, values = new_tokens(given)
    fp8 = given.paged_kv.dtype != torch.bfloat16
    one = torch.ones(1)
    module.context_attention_fwd(
        given.query,
        keys,
        values,
        given.out,
        "fp8" if fp8 else "auto",
        given.paged_kv.key.tensor,
        given.paged_kv.value.tensor,
        given.block_table,
        given.query_start_loc,
        given.seq_lens,
        int(given.seq_lens.max()),
        int(given.query_start_loc.diff().max()),
        given.k_scale if fp8 else one,
        given.v_scale if fp8 else one,
        sliding_window=given.sliding_window or 0,
        sm_scale=given.query.shape[2] ** -0.5,
        sinks=given.sinks,
    )


def prefix_work(batch: Batch, grid: Sequence[int]) -> NDArray[np.float64]:
    """Steps of each workgroup of ROCM_ATTN: requests, then heads, then blocks of tokens.

    It goes through all keys, also those that a window hides.
    """
    whole = replace(batch, window=0)
    steps = np.zeros((grid[2], 1, grid[0]))
    for request, (new, total) in enumerate(zip(batch.queries, batch.keys, strict=True)):
        begins = np.arange(0, new, PREFIX_ROWS)
        steps[: len(begins), 0, request] = steps_of(
            whole, begins, PREFIX_ROWS, new, total, PREFIX_KEYS
        )
    return np.broadcast_to(steps, (grid[2], grid[1], grid[0])).reshape(-1)


def _lacks_in_prefix(batch: Batch) -> str:
    if batch.decode:
        return "a kernel in HIP computes decodes"
    return "it has no soft caps" if batch.soft_cap else ""


def kernels(gpu: TritonGpu) -> list[StockAttention]:
    """vLLM's kernels for prefill on an AMD GPU without AITER."""
    return [
        StockAttention(gpu, "vLLM TRITON_ATTN", ROWS, run_unified, unified_work, lambda grid: 1),
        StockAttention(
            gpu,
            "vLLM ROCM_ATTN",
            SPLIT,
            run_prefix_prefill,
            prefix_work,
            lambda grid: grid[0],
            _lacks_in_prefix,
        ),
    ]
