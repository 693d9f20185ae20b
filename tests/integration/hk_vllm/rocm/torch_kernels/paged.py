"""What TRITON_ATTN and ROCM_AITER_UNIFIED_ATTN write: keys and values `[B, N, H, D]`."""

from __future__ import annotations

from typing import Any

import torch

from tests.integration.hk_vllm.rocm.torch_kernels.common import places, to_cache
from tests.integration.hk_vllm.rocm.torch_kernels.x_packed import write_x_packed


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
