"""Describes the KV pool: from SGLang's tensors to `PagedKV`, without copies.

A pool of SGLang (sglang/srt/mem_cache/memory_pool.py, `MHATokenToKVPool`) has two tensors per
layer, in one of three layouts. Page 0 belongs to no request: padding is written there.
"""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.ops import PagedKV

LAYOUTS = {
    "nhd": ("B N H D", "B N H D"),  # `[slots, heads, channels]`
    "hnd": ("B H N D", "B H N D"),  # SGLANG_USE_HND_KVCACHE
    "vectorized_5d": ("B H D/x N x", "B H N/x D x"),  # SGLANG_AITER_KV_CACHE_LAYOUT
}


def is_window_layer(pool: Any, layer_id: int) -> bool:
    """Whether a layer's keys are in the pool of sliding-window layers, which has own slots."""
    mapping = getattr(pool, "layers_mapping", None)
    return mapping is not None and bool(mapping[layer_id][1])


def part_of(pool: Any, layer_id: int) -> Any:
    """The pool that holds a layer's tensors."""
    if not hasattr(pool, "layers_mapping"):
        return pool
    return pool.swa_kv_pool if is_window_layer(pool, layer_id) else pool.full_kv_pool


def refuse_pool(pool: Any, layer_id: int) -> str:
    """Reason why HK does not write or read the pool of a layer; empty if it does."""
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    if type(pool) not in (MHATokenToKVPool, SWAKVPool):
        return f"KV pool {type(pool).__name__}"
    part = part_of(pool, layer_id)
    if type(part) is not MHATokenToKVPool:
        return f"KV pool {type(part).__name__}"
    if part.is_quantized_kv_cache:
        return f"KV cache quantised by {part.quant_method.name}"
    if part.post_capture_active or part.layer_shard_enabled:
        return "a KV pool whose memory comes later"
    if part.kv_cache_layout not in LAYOUTS:
        return f"KV pool layout {part.kv_cache_layout}"
    return ""


def layouts_of(pool: Any, layer_id: int) -> tuple[str, str]:
    """Layout strings of a layer's keys and values (see `PagedKV`)."""
    return LAYOUTS[part_of(pool, layer_id).kv_cache_layout]


def read_pool(pool: Any, layer_id: int, key: torch.Tensor, value: torch.Tensor) -> PagedKV:
    """Describes the tensors of a layer that `pool.get_kv_buffer` returned."""
    part = part_of(pool, layer_id)
    key_layout, value_layout = LAYOUTS[part.kv_cache_layout]
    if part.kv_cache_layout == "nhd":
        key, value = (_pages(tensor, part.page_size) for tensor in (key, value))
    return PagedKV.from_views(key, key_layout, value, value_layout)


def _pages(slots: torch.Tensor, page_size: int) -> torch.Tensor:
    """View of `[slots, H, D]` as `[pages, page_size, H, D]`."""
    pages = slots.shape[0] // page_size
    return slots[: pages * page_size].view(pages, page_size, *slots.shape[1:])
