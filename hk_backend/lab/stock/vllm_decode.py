"""vLLM's Triton decode attention: TRITON_ATTN's kernels, and the fallback of ROCM_ATTN."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.batches import ROWS, SPLIT, Batch
from hk_backend.lab.stock.decode import Step, StockDecode, in_parts
from hk_backend.lab.stock.vllm_attention import UNIFIED_ROWS, run_unified
from hk_backend.terms.attention_arguments import AttentionArguments

BACKEND = "vllm.v1.attention.backends.triton_attn"
PAGED = "vllm.v1.attention.ops.chunked_prefill_paged_decode"
CAPTURES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Numbers of requests that vLLM captures a graph for, up to its default limit."""
SEGMENT_KEYS = 16
"""Keys in a step of the loop over a segment, in bf16 (`_get_tile_size`)."""


def prepare_unified(given: AttentionArguments) -> Step:
    """A step of TRITON_ATTN. Few requests are computed in segments, which a second kernel joins.

    Its metadata builder allocates what the segments leave; `unified_attention` takes the decision.
    """
    module = import_module(BACKEND)
    assert given.paged_kv is not None
    heads, kv_heads = given.query.shape[1], given.paged_kv.num_kv_heads
    fewest = module.MIN_LAUNCH_GRID_SIZE_2D // kv_heads
    threshold = min(CAPTURES, key=lambda size: abs(size - fewest))
    segments = module.NUM_PAR_SOFTMAX_SEGMENTS
    room = (threshold, heads, segments)
    more: dict[str, Any] = {
        "seq_threshold_3D": threshold,
        "num_par_softmax_segments": segments,
        "softmax_segm_output": torch.empty(*room, given.query.shape[2]),
        "softmax_segm_max": torch.empty(room),
        "softmax_segm_expsum": torch.empty(room),
    }
    return Step(lambda: run_unified(given, **more), lambda grid: unified_work(given, grid))


def unified_work(given: AttentionArguments, grid: Sequence[int]) -> NDArray[np.float64]:
    """Keys of each workgroup: blocks of tokens, KV heads, segments; results for the join.

    A block of tokens never has those of two requests, so that some blocks are empty.
    """
    assert given.seq_lens is not None
    assert given.paged_kv is not None
    heads, kv_heads = given.query.shape[1], given.paged_kv.num_kv_heads
    if (grid[1], grid[2]) == (heads, 1):
        return np.ones(grid[0] * heads)
    keys = given.seq_lens.numpy().astype(np.int64)
    tiles = -(-keys // (SEGMENT_KEYS * grid[2]))
    part = tiles * SEGMENT_KEYS if grid[2] > 1 else keys
    requests = np.arange(len(keys))
    whole = np.zeros((grid[2], 1, grid[0]))
    blocks = requests // (UNIFIED_ROWS // (heads // kv_heads)) + requests
    whole[:, 0, blocks] = in_parts(keys, part, grid[2])
    return np.broadcast_to(whole, (grid[2], grid[1], grid[0])).reshape(-1)


def prepare_paged(given: AttentionArguments) -> Step:
    """A step of ROCM_ATTN, whose new keys lie in the cache and beside it."""
    cache = given.paged_kv
    assert cache is not None
    assert given.seq_lens is not None
    fp8 = cache.dtype != torch.bfloat16
    one = torch.ones(1)
    new = torch.empty(len(given.query), cache.num_kv_heads, cache.head_size, dtype=torch.bfloat16)
    keys = given.seq_lens.numpy().astype(np.float64)

    def run() -> None:
        import_module(PAGED).chunked_prefill_paged_decode(
            given.query,
            new,
            new,
            given.out,
            "fp8" if fp8 else "auto",
            cache.key.tensor,
            cache.value.tensor,
            given.block_table,
            given.query_start_loc,
            given.seq_lens,
            int(keys.max()),
            1,
            given.k_scale if fp8 else one,
            given.v_scale if fp8 else one,
            sliding_window=given.sliding_window or 0,
            sm_scale=given.query.shape[2] ** -0.5,
            sinks=given.sinks,
        )

    return Step(run, lambda grid: np.tile(keys, grid[1]))


def in_hip(batch: Batch) -> str:
    """Whether ROCM_ATTN has this batch from a compiled kernel, as vLLM itself decides."""
    compiled = import_module("vllm.platforms.rocm").use_rocm_custom_paged_attention(
        torch.bfloat16,
        batch.head_size,
        batch.page,
        batch.heads // batch.kv_heads,
        max(batch.keys),
        batch.window,
        "fp8" if batch.fp8 else "auto",
        None,
        torch.empty(batch.heads) if batch.sinks else None,
    )
    return "it decodes by paged_attention_rocm, compiled C++" if compiled else ""


def kernels(gpu: TritonGpu) -> list[StockDecode]:
    """vLLM's kernels for decode on an AMD GPU without AITER."""
    return [
        StockDecode(gpu, "vLLM TRITON_ATTN", ROWS, prepare_unified),
        StockDecode(
            gpu,
            "vLLM ROCM_ATTN",
            SPLIT,
            prepare_paged,
            lambda batch: "it has no soft caps" if batch.soft_cap else "",
            in_hip,
        ),
    ]
