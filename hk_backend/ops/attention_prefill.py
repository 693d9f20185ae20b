"""`attention_prefill`: attention of new tokens over packed or paged keys and values.

A call passes three layers. The function that a user calls bundles and checks the arguments. The
`torch.library` operator takes only tensors and numbers, and is what torch.compile sees. The device
executes it (`hk_backend.devices`).
"""

from __future__ import annotations

import math

import torch

from hk_backend.ops.attention_check import check_attention, check_query
from hk_backend.ops.attention_envelope import limits
from hk_backend.ops.registry import declare, run
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.paged_kv import PagedKV


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
    max_seq_len: int | None = None,
    out: torch.Tensor | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of a ragged batch of query tokens over packed or paged keys and values.

    Query i of a request with n queries and s keys is at position s - n + i (bottom-right
    aligned). With `causal` it sees keys 0 to s - n + i. A row that sees no key has output zero.

    Args:
        query: `[tokens, num_heads, head_size]`, bfloat16, float16 or float32, any strides.
        key, value: packed `[kv_tokens, num_kv_heads, head_size]`; not with `paged_kv`. Values, also
            those of a cache, may have another size than keys, `value_size`.
        query_start_loc: int32 `[requests + 1]`, the first token of each request and the end of
            the last one. Tokens from that end on belong to no request: their output is not written.
        key_start_loc: the same for packed keys; default: `query_start_loc`.
        paged_kv: the cache's keys and values. It needs `block_table`, int32
            `[requests, max_blocks]` (the blocks of each request, in order), and `seq_lens`, int32
            `[requests]` (its keys, the new ones included: if causal, no fewer than its queries).
        scale: factor of the scores; default `head_size ** -0.5`.
        sliding_window: a query sees keys less than this many positions away (behind it and, if
            not causal, also ahead of it).
        logits_soft_cap: scores become `cap * tanh(score / cap)`; None or 0 is off.
        sinks: float32 `[num_heads]`, one more logit per head that takes weight but has no value.
        alibi_slopes: float32 `[num_heads]`; adds `slope * (key position - query position)`.
        k_scale, v_scale: factors of stored keys and of stored values, for example of an FP8 cache:
            a number, or float32 `[1]` or `[num_kv_heads]`.
        max_seq_len: the largest of `seq_lens`, if the host knows it. It does not change the result.
            With it, a GPU may share the keys of few rows between workgroups.
        out: tensor to write, `[tokens, num_heads, value_size]`, the dtype of `query`.
        return_lse: also return the natural log-sum-exp of the (scaled, capped) scores and the
            sink, float32 `[num_heads, tokens]`, minus infinity for a row that sees nothing.

    Returns:
        `out`, or `(out, lse)`. Rows past the batch are left as they were.

    Raises:
        ValueError: an argument outside the envelope or inconsistent with another; the message
            names it, its value and what would be valid. Nothing has been computed or written.
    """
    shape = check_query(query, value, paged_kv)
    if out is None:
        out = torch.empty(shape, dtype=query.dtype, device=query.device)
    lse = None
    if return_lse:
        lse = query.new_full((query.shape[1], query.shape[0]), -math.inf, dtype=torch.float32)
    arguments = AttentionArguments(  # positional, as 19 names would take a microsecond
        query,
        query_start_loc,
        out,
        lse,
        key,
        value,
        key_start_loc,
        paged_kv,
        block_table,
        seq_lens,
        scale,
        causal,
        sliding_window,
        logits_soft_cap,
        sinks,
        alibi_slopes,
        k_scale,
        v_scale,
        max_seq_len,
    )
    check_attention(arguments)
    run(arguments, query)
    return out if lse is None else (out, lse)


declare(attention_prefill, AttentionArguments, limits=limits)
