"""Prefill attention as its definition: one request at a time, one explicit mask, float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hk_backend.ops.paged_kv import CacheView, PagedKV


def attention_prefill(
    query: torch.Tensor,
    key: torch.Tensor | None = None,
    value: torch.Tensor | None = None,
    *,
    query_start_loc: torch.Tensor,
    key_start_loc: torch.Tensor | None = None,
    paged_kv: PagedKV | None = None,
    block_table: torch.Tensor | None = None,
    seq_lens: torch.Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    sliding_window: int | None = None,
    logits_soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    k_scale: float | torch.Tensor = 1.0,
    v_scale: float | torch.Tensor = 1.0,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator `hk_backend.ops.attention_prefill` by definition (same arguments).

    Returns:
        output `[tokens, num_heads, head_size]` and log-sum-exp `[num_heads, tokens]`, both in
        `dtype`. Rows that no request owns are zero and minus infinity.
    """
    num_tokens, num_heads, head_size = query.shape
    scale = 1.0 / math.sqrt(head_size) if scale is None else scale
    output = torch.zeros(num_tokens, num_heads, head_size, dtype=dtype)
    lse = torch.full((num_heads, num_tokens), -math.inf, dtype=dtype)
    starts = query_start_loc.tolist()
    key_starts = starts if key_start_loc is None else key_start_loc.tolist()
    for request, (first, last) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        if paged_kv is not None:
            assert block_table is not None and seq_lens is not None
            length = int(seq_lens[request])
            keys = gather_paged(paged_kv.key, paged_kv, block_table[request], length)
            values = gather_paged(paged_kv.value, paged_kv, block_table[request], length)
        else:
            assert key is not None and value is not None
            keys = key[key_starts[request] : key_starts[request + 1]]
            values = value[key_starts[request] : key_starts[request + 1]]
        group = num_heads // keys.shape[1]
        keys = (keys.to(dtype) * _per_head(k_scale, dtype)).repeat_interleave(group, dim=1)
        values = (values.to(dtype) * _per_head(v_scale, dtype)).repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", query[first:last].to(dtype), keys) * scale
        if logits_soft_cap:
            scores = logits_soft_cap * torch.tanh(scores / logits_soft_cap)
        distance = _distance(last - first, len(keys))
        if alibi_slopes is not None:
            scores = scores - alibi_slopes.to(dtype)[:, None, None] * distance
        visible = torch.ones_like(distance, dtype=torch.bool)
        if causal:
            visible &= distance >= 0
        if sliding_window is not None:
            visible &= distance.abs() < sliding_window
        out, total = _softmax_times_values(scores, visible, values, sinks)
        output[first:last] = out
        lse[:, first:last] = total
    return output, lse


def _distance(num_queries: int, num_keys: int) -> torch.Tensor:
    """`[queries, keys]`: how many positions a key lies behind its query (bottom-right aligned)."""
    positions = torch.arange(num_keys - num_queries, num_keys)
    return positions[:, None] - torch.arange(num_keys)[None, :]


def _softmax_times_values(
    scores: torch.Tensor, visible: torch.Tensor, values: torch.Tensor, sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over the visible keys, row by row, so that a hidden NaN stays hidden."""
    scores = scores.masked_fill(~visible, -math.inf)
    if sinks is not None:
        sink = sinks.to(scores.dtype)[:, None, None].expand(-1, scores.shape[1], 1)
        total = torch.logsumexp(torch.cat([scores, sink], dim=-1), dim=-1)
    else:
        total = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - total[:, :, None]).masked_fill(~visible, 0.0)
    finite = values.masked_fill(~values.isfinite(), 0.0)
    out = torch.einsum("hqk,khd->qhd", weights, finite)
    if not values.isfinite().all():
        bad = values.masked_fill(values.isfinite(), 0.0)
        for q in range(scores.shape[1]):
            seen = visible[q]
            out[q] += torch.einsum("hk,khd->hd", weights[:, q, seen], bad[seen])
    return out.masked_fill(~visible.any(-1)[:, None, None], 0.0), total


def _per_head(scale: float | torch.Tensor, dtype: torch.dtype) -> float | torch.Tensor:
    """A scale as a factor of `[tokens, num_kv_heads, head_size]`."""
    if isinstance(scale, torch.Tensor):
        return scale.to(dtype).reshape(-1)[None, :, None]
    return scale


def gather_paged(
    view: CacheView, cache: PagedKV, block_table: torch.Tensor, length: int
) -> torch.Tensor:
    """One request's keys or values, `[length, num_kv_heads, head_size]`, copied out of a cache."""
    tokens = torch.arange(length)
    channels = torch.arange(cache.head_size)
    heads = torch.arange(cache.num_kv_heads)
    block, head, token_outer, token_inner, channel_outer, channel_inner = view.strides
    in_block = tokens % cache.block_size
    token_offset = (
        block_table.long()[tokens // cache.block_size] * block
        + in_block // view.token_split * token_outer
        + in_block % view.token_split * token_inner
    )
    channel_offset = (
        channels // view.channel_split * channel_outer
        + channels % view.channel_split * channel_inner
    )
    index = token_offset[:, None, None] + heads[None, :, None] * head + channel_offset
    start = view.tensor.storage_offset()
    span = view.tensor.untyped_storage().nbytes() // view.tensor.element_size()
    flat = torch.as_strided(view.tensor, (span,), (1,), 0)
    return flat[index + start]


def merge_attention(
    output_a: torch.Tensor, lse_a: torch.Tensor, output_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two partial results over disjoint keys, joined by their log-sum-exp, in float64.

    Shapes as `attention_prefill` returns them. A side whose log-sum-exp is minus infinity
    saw no key and does not count, whatever its output holds.
    """
    a, b = lse_a.double(), lse_b.double()
    total = torch.logaddexp(a, b)
    merged = torch.zeros(output_a.shape, dtype=torch.float64)
    for out, lse in ((output_a, a), (output_b, b)):
        weight = torch.exp(lse - total).masked_fill(lse == -math.inf, 0.0).T[:, :, None]
        merged += torch.where(weight > 0, weight * out.double(), 0.0)
    return merged, total
