"""What the writers of caches share: FP8, addressing."""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
"""What vLLM's CPU platform calls its FP8; a cache arrives as bytes or as this."""


def to_cache(tensor: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """New keys or values as `cache` stores them."""
    if cache.dtype in (torch.uint8, FP8):
        return (tensor / scale).to(FP8).view(cache.dtype)
    return tensor


def places(
    slot_mapping: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """New token, its block, its place there; a negative slot is padding and left out."""
    token = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[token].long()
    return token, slots // block_size, slots % block_size
