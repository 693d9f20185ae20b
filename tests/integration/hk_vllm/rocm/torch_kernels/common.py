"""What the stand-ins share: attention of one request, FP8, addressing."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

FP8 = torch.float8_e4m3fn
"""What vLLM's CPU platform calls its FP8; a cache arrives as bytes or as this."""


def to_cache(tensor: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """New keys or values as `cache` stores them."""
    if cache.dtype in (torch.uint8, FP8):
        return (tensor / scale).to(FP8).view(cache.dtype)
    return tensor


def from_cache(tensor: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """Stored keys or values as numbers."""
    if tensor.dtype is FP8:
        assert scale is not None
        return tensor.float() * scale.flatten()[0]
    return tensor


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    causal: bool,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One request: query `[n, heads, D]`, key and value `[s, kv_heads, D]`, last tokens aligned.

    `window`: keys that a query sees, its own included; 0: all. `sinks`: `[heads]`, logits that
    join each softmax. Returns the output in float32 and the log-sum-exp `[heads, n]`.
    """
    group = query.shape[1] // key.shape[1]
    keys = key.float().repeat_interleave(group, dim=1)
    values = value.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    if causal:
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(len(key) - len(query) + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    if window:
        past = torch.ones(scores.shape[1:], dtype=torch.bool).tril(len(key) - len(query) - window)
        scores = scores.masked_fill(past, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, len(query), 1)], -1)
    weights = scores.softmax(-1)[:, :, : len(key)]
    return torch.einsum("hqk,khd->qhd", weights, values), scores.logsumexp(-1)


def places(
    slot_mapping: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """New token, its block, its place there; a negative slot is padding and left out."""
    token = (slot_mapping >= 0).nonzero().flatten()
    slots = slot_mapping[token].long()
    return token, slots // block_size, slots % block_size


def rows(start_loc: torch.Tensor) -> list[tuple[int, int]]:
    """First token and end of each row."""
    return list(pairwise(start_loc.tolist()))
