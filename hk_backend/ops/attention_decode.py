"""`attention_decode`: attention of a few new tokens of each request over a paged cache."""

from __future__ import annotations

import math

import torch

from hk_backend.ops.attention_check import check_attention, check_query
from hk_backend.ops.attention_envelope import limits
from hk_backend.ops.registry import declare, run
from hk_backend.terms.attention_arguments import DecodeArguments
from hk_backend.terms.checks import bad
from hk_backend.terms.paged_kv import PagedKV


def attention_decode(
    query: torch.Tensor,
    *,
    query_start_loc: torch.Tensor,
    paged_kv: PagedKV,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    max_query_len: int = 1,
    scale: float | None = None,
    sliding_window: int | None = None,
    logits_soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    k_scale: float | torch.Tensor = 1.0,
    v_scale: float | torch.Tensor = 1.0,
    out: torch.Tensor | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Causal attention of a few query tokens of each request over a paged cache.

    It computes what `attention_prefill` does, for the arguments that both have. On a GPU the launch
    depends on no length: a captured one serves any lengths, also of a batch with empty rows.

    Args:
        query: `[tokens, num_heads, head_size]`, bfloat16, float16 or float32, any strides.
        query_start_loc: int32 `[requests + 1]`, the first token of each request and the end of the
            last one. A request may have no token: it costs nothing.
        paged_kv, block_table, seq_lens: the cache, see `attention_prefill`.
        max_query_len: most query tokens of a request. On a GPU, tokens past it may be left out.
        scale, sliding_window, logits_soft_cap, sinks, alibi_slopes, k_scale, v_scale: see
            `attention_prefill`.
        out: tensor to write, `[tokens, num_heads, value_size]`, the dtype of `query`.
        return_lse: also return the natural log-sum-exp, float32 `[num_heads, tokens]`.

    Returns:
        `out`, or `(out, lse)`. Rows past the batch are left as they were.

    Raises:
        ValueError: an argument outside the envelope or inconsistent with another; the message
            names it, its value and what would be valid. Nothing has been computed or written.
    """
    if not isinstance(paged_kv, PagedKV):
        bad("paged_kv", paged_kv, "a cache")
    shape = check_query(query, None, paged_kv)
    if max_query_len < 1:
        bad("max_query_len", max_query_len, "at least 1")
    if out is None:
        out = torch.empty(shape, dtype=query.dtype, device=query.device)
    lse = None
    if return_lse:
        lse = query.new_full((query.shape[1], query.shape[0]), -math.inf, dtype=torch.float32)
    arguments = DecodeArguments(
        query,
        query_start_loc,
        out,
        lse,
        paged_kv=paged_kv,
        block_table=block_table,
        seq_lens=seq_lens,
        scale=scale,
        sliding_window=sliding_window,
        logits_soft_cap=logits_soft_cap,
        sinks=sinks,
        alibi_slopes=alibi_slopes,
        k_scale=k_scale,
        v_scale=v_scale,
        max_query_len=max_query_len,
    )
    check_attention(arguments)
    run(arguments, query)
    return out if lse is None else (out, lse)


declare(attention_decode, DecodeArguments, limits=limits)
