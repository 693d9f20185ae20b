"""The KV pool: HK writes it, reads it without copies, and proves that it reads what was written.

A pool of SGLang (sglang/srt/mem_cache/memory_pool.py, `MHATokenToKVPool`) has two tensors per
layer, in one of three layouts. Page 0 belongs to no request: padding is written there.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from hk_backend.engine import cache_proof
from hk_backend.engine.cache_proof import SPARE_BLOCK, UnknownCacheForm
from hk_backend.ops import PagedKV
from hk_sglang.attention.parents import Parent

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
    """Describes the tensors of a layer that `pool` returned."""
    part = part_of(pool, layer_id)
    key_layout, value_layout = LAYOUTS[part.kv_cache_layout]
    if part.kv_cache_layout == "nhd":
        key, value = (_pages(tensor, part.page_size) for tensor in (key, value))
    return PagedKV.from_views(key, key_layout, value, value_layout)


def _pages(slots: torch.Tensor, page_size: int) -> torch.Tensor:
    """View of `[slots, H, D]` as `[pages, page_size, H, D]`."""
    pages = slots.shape[0] // page_size
    return slots[: pages * page_size].view(pages, page_size, *slots.shape[1:])


class Caches:
    """The KV pool of a model's layers, for HK beside `parent`.

    Args:
        pool: a runner's `token_to_kv_pool`.
        dtype: dtype of keys and values as models project them.
    """

    def __init__(self, pool: Any, parent: Parent, dtype: torch.dtype) -> None:
        self.pool = pool
        self._parent = parent
        self._dtype = dtype
        self._known: dict[int, tuple[torch.Tensor, PagedKV]] = {}

    @property
    def narrowed(self) -> bool:
        """Whether the pool's dtype differs from the model's."""
        return bool(self.pool.dtype != self._dtype)

    def paged(self, layer_id: int) -> PagedKV:
        """Description of the layer's part of the pool, made once per tensor that the pool holds."""
        # ask for keys each time: the pool waits here for a layer that is being loaded, values too
        key = self.pool.get_key_buffer(layer_id)
        known = self._known.get(layer_id)
        if known and (known[0] is key or _is_bound_alike(known[0], key)):
            return known[1]
        cache = read_pool(self.pool, layer_id, key, self.pool.get_value_buffer(layer_id))
        self._known[layer_id] = key, cache
        return cache

    def write(self, layer: Any, place: Any, k: torch.Tensor, v: torch.Tensor) -> None:
        """Writes keys and values to the pool by its own writer, divided by the parent's scales."""
        scales = self._parent.scales(layer)
        if self.pool.dtype == k.dtype or not any(s is not None for s in scales):
            self.pool.set_kv_buffer(layer, place, k, v)
        else:  # the writer divides in place
            self.pool.set_kv_buffer(layer, place, k.clone(), v.clone(), *scales)

    def read_scales(self, layer: Any) -> tuple[Any, Any]:
        """Factors by which the operator multiplies an FP8 pool's keys and values."""
        key, value = self._parent.scales(layer)
        return tuple(  # type: ignore[return-value]
            1.0 if scale is None else scale.float().view(1) if torch.is_tensor(scale) else scale
            for scale in (key, value)
        )

    def prove(self, layer: Any) -> str:
        """Reason why HK does not read what the writer writes; empty if it does."""

        def write(key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
            self.write(layer, KVWriteLoc(slots, swa_loc=slots), key, value)

        try:
            cache = self.paged(layer.layer_id)
            memory = [cache.key.tensor[SPARE_BLOCK], cache.value.tensor[SPARE_BLOCK]]
            form = (self._parent, cache.dtype, cache.key.tensor.shape, *cache.as_ints())
            scales = self.read_scales(layer)
            cache_proof.prove(cache, self._dtype, scales, memory, write, form)
        except UnknownCacheForm as error:
            return str(error)
        return ""


def _is_bound_alike(known: torch.Tensor, buffer: torch.Tensor) -> bool:
    """Whether a view of the pool, which an FP8 pool makes anew at each call, is the known one."""
    return known.data_ptr() == buffer.data_ptr() and known.shape == buffer.shape
