"""Torch versions, in float32, of what the engines' GPU kernels compute.

They cover attention of one request, FP8, pages, and the one kernel that both engines call. Nothing
here uses hk_backend, because HK's results are compared with these.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch


def unified_attention(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seqused_k: torch.Tensor,
    softmax_scale: float,
    block_table: torch.Tensor,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
    q_descale: torch.Tensor | None = None,
    causal: bool = True,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    **_rest: object,
) -> None:
    """AITER's kernel, and vLLM's: caches are `[B, N, H, D]`, and hold a row's new keys too.

    `window_size[0]`: keys before the query's own that it sees; -1: all.
    """
    for row, (first, last) in enumerate(rows(cu_seqlens_q)):
        length = int(seqused_k[row])
        out[first:last], _ = attend(
            numbers(q[first:last], q_descale),
            numbers(pages(k, block_table[row], length), k_descale),
            numbers(pages(v, block_table[row], length), v_descale),
            softmax_scale,
            causal=causal,
            window=window_size[0] + 1,
            sinks=sinks,
            soft_cap=softcap,
        )


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    *,
    causal: bool = True,
    window: int = 0,
    sinks: torch.Tensor | None = None,
    soft_cap: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one request; the last tokens of both sides are aligned.

    Queries are `[n, heads, D]`, keys and values `[s, kv_heads, D]`. `window`: keys that a query
    sees, its own included; 0: all. `sinks`: `[heads]`, logits that join each softmax. Returns the
    output in float32 and the log-sum-exp `[heads, n]`.
    """
    group = query.shape[1] // key.shape[1]
    keys, values = (side.float().repeat_interleave(group, dim=1) for side in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    behind = torch.arange(len(query))[:, None] + len(key) - len(query) - torch.arange(len(key))
    if causal:
        scores = scores.masked_fill(behind < 0, -math.inf)
    if window:
        scores = scores.masked_fill(behind >= window, -math.inf)
    if sinks is not None:
        column = sinks.float()[:, None, None].expand(-1, len(query), 1)
        scores = torch.cat([scores, column], dim=2)
    weights = scores.softmax(-1)[:, :, : len(key)]
    return torch.einsum("hqk,khd->qhd", weights, values), scores.logsumexp(-1)


def numbers(stored: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """The stored numbers as float32; FP8 is multiplied by its scale."""
    if stored.dtype.itemsize > 1:
        return stored.float()
    assert scale is not None
    return stored.float() * scale.flatten()[0]


def pages(cache: torch.Tensor, block_table: torch.Tensor, length: int) -> torch.Tensor:
    """The first `length` tokens of one request, from a cache `[B, N, H, D]`."""
    blocks = block_table[: -(-length // cache.shape[1])].long()
    return cache[blocks].flatten(0, 1)[:length]


def shuffled_as_pages(
    key_cache: torch.Tensor, value_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies `[B, N, H, D]` of a cache K `[B, H, D/x, N, x]`, V `[B, H, N/x, D, x]`."""
    keys = key_cache.permute(0, 3, 1, 2, 4).flatten(3)
    return keys, value_cache.permute(0, 2, 4, 1, 3).flatten(1, 2)


def rows(start_loc: torch.Tensor) -> list[tuple[int, int]]:
    """First token and end of each row."""
    return list(pairwise(start_loc.tolist()))
