"""Prefill attention by definition: one request at a time, one explicit mask, float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.paged_kv import CacheView, PagedKV


def attention_prefill(
    of: AttentionArguments, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    """Defines the operator `hk_backend.ops.attention_prefill`.

    Does not read or write `out` and `lse` of the arguments.

    Returns:
        output `[tokens, num_heads, value_size]` and log-sum-exp `[num_heads, tokens]`, both in
        `dtype`. Rows that no request owns are zero and minus infinity.
    """
    num_tokens, num_heads, head_size = of.query.shape
    scale = 1.0 / math.sqrt(head_size) if of.scale is None else of.scale
    output = torch.zeros(num_tokens, num_heads, of.value_size, dtype=dtype)
    lse = torch.full((num_heads, num_tokens), -math.inf, dtype=dtype)
    for tokens, stored_keys, stored_values in requests(of):
        keys = widened(stored_keys, of.k_scale, num_heads, dtype)
        values = widened(stored_values, of.v_scale, num_heads, dtype)
        scores = torch.einsum("qhd,khd->hqk", of.query[tokens].to(dtype), keys) * scale
        if of.logits_soft_cap:
            scores = of.logits_soft_cap * torch.tanh(scores / of.logits_soft_cap)
        behind = distance(scores.shape[1], scores.shape[2])
        if of.alibi_slopes is not None:
            scores = scores - of.alibi_slopes.to(dtype)[:, None, None] * behind
        visible = visible_keys(behind, of.causal, of.sliding_window)
        output[tokens], lse[:, tokens] = _softmax_times_values(scores, visible, values, of.sinks)
    return output, lse


def requests(of: AttentionArguments) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yields the tokens, keys and values of each request that has a query.

    Keys are `[keys, num_kv_heads, head_size]`, values `[keys, num_kv_heads, value_size]`.
    """
    starts = of.query_start_loc.tolist()
    key_starts = starts if of.key_start_loc is None else of.key_start_loc.tolist()
    for request, (first, last) in enumerate(itertools.pairwise(starts)):
        if first == last:
            continue
        if of.paged_kv is not None:
            assert of.block_table is not None
            assert of.seq_lens is not None
            blocks, length = of.block_table[request], int(of.seq_lens[request])
            keys = gather_paged(of.paged_kv.key, of.paged_kv, blocks, length)
            values = gather_paged(of.paged_kv.value, of.paged_kv, blocks, length)
        else:
            owned = slice(key_starts[request], key_starts[request + 1])
            keys, values = (stored[owned] for stored in of.stored())
        yield slice(first, last), keys, values


def distance(num_queries: int, num_keys: int) -> torch.Tensor:
    """Positions by which a key lies behind a query, `[queries, keys]`, bottom-right aligned."""
    positions = torch.arange(num_keys - num_queries, num_keys)
    return positions[:, None] - torch.arange(num_keys)[None, :]


def visible_keys(behind: torch.Tensor, causal: bool, sliding_window: int | None) -> torch.Tensor:
    """Mask of the keys that each query sees, from their `distance`."""
    visible = torch.ones_like(behind, dtype=torch.bool)
    if causal:
        visible &= behind >= 0
    if sliding_window is not None:
        visible &= behind.abs() < sliding_window
    return visible


def _softmax_times_values(
    scores: torch.Tensor, visible: torch.Tensor, values: torch.Tensor, sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over the visible keys times the values; hidden values have no effect, not even NaN.

    A score of minus infinity has no weight; a row without any other score becomes zeros.
    """
    scores = scores.masked_fill(~visible, -math.inf)
    logits = scores
    if sinks is not None:
        sink = sinks.to(scores.dtype)[:, None, None].expand(-1, scores.shape[1], 1)
        logits = torch.cat([scores, sink], dim=-1)
    total = torch.logsumexp(logits, dim=-1)
    # not exp(scores - total): past 2^53 the total rounds to its largest score
    weights = torch.softmax(logits, dim=-1)[..., : scores.shape[-1]]
    weights = weights.masked_fill(scores == -math.inf, 0.0)
    if sinks is not None:  # a sink of infinity takes all weight
        weights = weights.masked_fill((sinks == math.inf)[:, None, None], 0.0)
    usable = values.isfinite()
    out = torch.einsum("hqk,khd->qhd", weights, values.masked_fill(~usable, 0.0))
    for key in (~usable).any(-1).any(-1).nonzero().flatten().tolist():
        # 0 * NaN is NaN: an infinite or NaN value may only meet the rows that see its key
        term = weights[:, :, key].T[:, :, None] * values[key].masked_fill(usable[key], 0.0)
        out += torch.where(visible[:, key, None, None], term, 0.0)
    return out.masked_fill((total == -math.inf).T[:, :, None], 0.0), total


def widened(
    stored: torch.Tensor, scale: float | torch.Tensor, num_heads: int, dtype: torch.dtype
) -> torch.Tensor:
    """Keys or values `[keys, num_kv_heads, d]` as `[keys, num_heads, d]` in `dtype`, scaled."""
    factor = scale.to(dtype)[None, :, None] if isinstance(scale, torch.Tensor) else scale
    return (stored.to(dtype) * factor).repeat_interleave(num_heads // stored.shape[1], dim=1)


def gather_paged(
    view: CacheView, cache: PagedKV, block_table: torch.Tensor, length: int
) -> torch.Tensor:
    """One request's keys or values, `[length, num_kv_heads, channels]`, copied out of a cache."""
    tokens = torch.arange(length)
    channels = torch.arange(cache.value_size if view is cache.value else cache.head_size)
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
    """Joins two partial results over disjoint keys by their log-sum-exp, in float64.

    Shapes are those that `attention_prefill` returns. A side whose log-sum-exp is minus infinity
    saw no key and does not count, whatever its output holds.
    """
    a, b = lse_a.double(), lse_b.double()
    total = torch.logaddexp(a, b)
    merged = torch.zeros(output_a.shape, dtype=torch.float64)
    for out, lse in ((output_a, a), (output_b, b)):
        weight = torch.exp(lse - total).T[:, :, None]
        saw_a_key = (lse != -math.inf).T[:, :, None]
        merged += torch.where(saw_a_key, weight * out.double(), 0.0)
    return merged, total
