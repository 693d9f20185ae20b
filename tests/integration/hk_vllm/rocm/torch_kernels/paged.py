"""TRITON_ATTN and ROCM_AITER_UNIFIED_ATTN: keys and values `[B, N, H, D]`, any strides."""

from __future__ import annotations

from typing import Any

import torch

from tests.integration.hk_vllm.rocm.torch_kernels.common import (
    attend,
    from_cache,
    places,
    rows,
    to_cache,
)
from tests.integration.hk_vllm.rocm.torch_kernels.x_packed import write_x_packed


def unified_attention(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seqused_k: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    block_table: torch.Tensor,
    k_descale: torch.Tensor,
    v_descale: torch.Tensor,
    window_size: tuple[int, int] = (-1, -1),
    sinks: torch.Tensor | None = None,
    **_rest: object,
) -> None:
    """Every row reads all its keys from the cache, the new ones too."""
    window = window_size[0] + 1
    for row, (first, last) in enumerate(rows(cu_seqlens_q)):
        if last == first:
            continue
        length = int(seqused_k[row])
        keys = from_cache(pages(k, block_table[row], length), k_descale)
        values = from_cache(pages(v, block_table[row], length), v_descale)
        mine = attend(q[first:last], keys, values, softmax_scale, causal, window, sinks)
        out[first:last] = mine[0]


def write_pages(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """`reshape_and_cache_flash`: caches `[B, N, H, D]`."""
    token, block, offset = places(slot_mapping, key_cache.shape[1])
    key_cache[block, offset] = to_cache(key[token], key_cache, k_scale)
    value_cache[block, offset] = to_cache(value[token], value_cache, v_scale)


def triton_reshape_and_cache_flash(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, *rest: Any
) -> None:
    """Takes both forms, as the Triton kernel does: K of five axes is ROCM_ATTN's."""
    writer = write_x_packed if key_cache.dim() == 5 else write_pages
    writer(key, value, key_cache, *rest)


def pages(cache: torch.Tensor, block_table: torch.Tensor, length: int) -> torch.Tensor:
    """The first `length` tokens of one request, from a cache `[B, N, H, D]`."""
    blocks = block_table[: -(-length // cache.shape[1])].long()
    return cache[blocks].flatten(0, 1)[:length]
