"""The pool of a backend: HK writes it, reads it, and proves that it reads what was written."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from hk_backend.engine import cache_proof
from hk_backend.engine.cache_proof import SPARE_BLOCK, UnknownCacheForm
from hk_backend.ops import PagedKV
from hk_sglang.attention.parents import Parent
from hk_sglang.attention.pools import read_pool


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
        # ask each time: the pool waits here for a layer that is being loaded
        key, value = self.pool.get_kv_buffer(layer_id)
        known = self._known.get(layer_id)
        if known and (known[0] is key or _is_bound_alike(known[0], key)):
            return known[1]
        cache = read_pool(self.pool, layer_id, key, value)
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
