"""Proof, on the running engine, that HK reads a cache as its parent writes it.

A cache form is knowledge about another project's kernels; if one changes, reading by the old
form is silently wrong. So before a cache is first read, one block is written through the
parent's own writer and read back through HK's description.
"""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.ops import PagedKV
from hk_backend.reference import gather_paged
from hk_vllm.cache_forms import UnknownCacheForm

NULL_BLOCK = 0
"""vLLM's padding block: no request ever owns it."""

_proven: set[tuple[object, ...]] = set()


def prove(cache: PagedKV, impl: Any, layer: Any, kv_cache: torch.Tensor) -> None:
    """Write the null block, read it back, restore it; once per process and form.

    Raises:
        UnknownCacheForm: what was written is not what is read.
    """
    form = (type(impl), cache.dtype, kv_cache.shape, *cache.as_ints())
    if form in _proven:
        return
    device, tokens = kv_cache.device, cache.block_size
    shape = (tokens, cache.num_kv_heads, cache.head_size)
    generator = torch.Generator().manual_seed(0)
    key, value = (
        torch.randn(shape, generator=generator).to(device, impl._hk_dtype) for _ in range(2)
    )
    before = kv_cache[NULL_BLOCK].clone()
    slots = torch.arange(tokens, device=device) + NULL_BLOCK * tokens
    try:
        impl.do_kv_cache_update(layer, key, value, kv_cache, slots)
        with torch.device(device):
            block_table = torch.tensor([NULL_BLOCK])
            found_key = gather_paged(cache.key, cache, block_table, tokens)
            found_value = gather_paged(cache.value, cache, block_table, tokens)
    finally:
        kv_cache[NULL_BLOCK].copy_(before)
    k_scale, v_scale = impl.hk_form.scales(layer)
    _compare("keys", key, found_key, k_scale)
    _compare("values", value, found_value, v_scale)
    _proven.add(form)


def _compare(what: str, written: torch.Tensor, found: torch.Tensor, scale: torch.Tensor) -> None:
    if found.dtype == written.dtype:
        same = torch.equal(written, found)
    else:  # FP8 keeps at least two bits behind the leading one
        restored = found.float() * scale
        same = torch.allclose(restored, written.float(), rtol=0.13, atol=0.02)
    if not same:
        raise UnknownCacheForm(
            f"the cache's form is not the known one: written {what} read back differ"
        )
