"""What the writers of caches share: FP8, addressing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.float8 import saturated

FP8 = torch.float8_e4m3fn
"""What vLLM's CPU platform calls its FP8; a cache arrives as bytes or as this."""
WRITTEN = ("auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3")


def to_cache(tensor: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """New keys or values as `cache` stores them."""
    if cache.dtype in (torch.uint8, FP8):
        return saturated(tensor / scale, FP8).view(cache.dtype)
    return tensor


def compiled(write: Callable[..., None]) -> Callable[..., None]:
    """`write` as one of vLLM's own C++: on ROCm they refuse e5m2 (`DISPATCH_BY_KV_CACHE_DTYPE` in
    csrc/quantization/w8a8/fp8/amd/quant_utils.cuh)."""

    def checked(*tensors_and_dtype: Any) -> None:
        dtype = tensors_and_dtype[5]
        if dtype not in WRITTEN:
            raise RuntimeError(f"Unsupported data type of kv cache: {dtype}")
        write(*tensors_and_dtype)

    return checked


def places(
    slot_mapping: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """New token, its block, its place there; a negative slot is padding and left out."""
    token = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[token].long()
    return token, slots // block_size, slots % block_size
