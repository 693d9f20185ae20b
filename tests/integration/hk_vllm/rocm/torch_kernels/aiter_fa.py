"""ROCM_AITER_FA: packed prefill, decode over `[B, N, H, D]` or over AITER's shuffled cache.

Shuffled: keys `[B, H, D/x, N, x]`, values `[B, H, N/x, D, x]`, x = 16 bytes.
"""

from __future__ import annotations

import math

import torch

from tests.integration.hk_vllm.rocm.torch_kernels.common import places, to_cache
from tests.integration.shared.attention.torch_kernels import (
    attend,
    numbers,
    pages,
    rows,
    shuffled_as_pages,
)


def flash_attn_varlen_func(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    return_lse: bool = False,
    out: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    sink_ptr: torch.Tensor | None = None,
    **_rest: object,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Packed keys and values; a request without keys gives zeros and minus infinity."""
    out = torch.empty_like(q) if out is None else out
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf)
    for (first, last), (k0, k1) in zip(rows(cu_seqlens_q), rows(cu_seqlens_k), strict=True):
        if k1 == k0:
            out[first:last] = 0
            continue
        part = q[first:last], k[k0:k1], v[k0:k1]
        result = attend(
            *part, softmax_scale, causal=causal, window=window_size[0] + 1, sinks=sink_ptr
        )
        out[first:last], lse[:, first:last] = result
    return (out, lse) if return_lse else out


def merge_attn_states(
    *,
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None = None,
) -> None:
    total = torch.logaddexp(prefix_lse, suffix_lse)
    prefix, suffix = (torch.exp(x - total).T[:, :, None] for x in (prefix_lse, suffix_lse))
    output.copy_(prefix * prefix_output.float() + suffix * suffix_output.float())
    if output_lse is not None:
        output_lse.copy_(total)


def shuffled(
    key_cache: torch.Tensor, value_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The memory of `[B, N, H, D]` views, read as K `[B, H, D/x, N, x]`, V `[B, H, N/x, D, x]`.

    Only the pointer and the block stride count, as in `reshape_and_cache_shuffle_kernel`.
    """
    blocks, tokens, heads, channels = key_cache.shape
    x = 16 // key_cache.element_size()

    def view(cache: torch.Tensor, shape: tuple[int, int, int, int]) -> torch.Tensor:
        outer, middle, inner = shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]
        strides = (cache.stride(0), outer, middle, inner, 1)
        return torch.as_strided(cache, (blocks, heads, *shape[1:]), strides)

    return (
        view(key_cache, (heads, channels // x, tokens, x)),
        view(value_cache, (heads, tokens // x, channels, x)),
    )


def reshape_and_cache_shuffle_triton(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *_ignored_scales: object,
) -> None:
    """The kernel's own scales are the constant 1, whatever the layer's are."""
    keys, values = shuffled(key_cache, value_cache)
    token, block, offset = places(slot_mapping, key_cache.shape[1])
    x, one = keys.shape[4], torch.ones(1)
    packed = key[token].unflatten(-1, (-1, x))
    keys[block, :, :, offset, :] = to_cache(packed, keys, one)
    values[block, :, offset // x, :, offset % x] = to_cache(value[token], values, one)


def cp_mha_gather_cache(
    *,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    block_tables: torch.Tensor,
    cu_seqlens_kv: torch.Tensor,
    seq_starts: torch.Tensor,
    kv_cache_layout: str,
    k_scales: torch.Tensor,
    v_scales: torch.Tensor,
    **_rest: object,
) -> None:
    """Copy tokens `seq_starts[i]` on of each request's cache into packed `key` and `value`."""
    if kv_cache_layout == "SHUFFLE":
        key_cache, value_cache = shuffled_as_pages(*shuffled(key_cache, value_cache))
        k_scales = v_scales = torch.ones(1)
    for row, (first, last) in enumerate(rows(cu_seqlens_kv)):
        start = int(seq_starts[row])
        end = start + last - first
        keys, values = (pages(c, block_tables[row], end)[start:] for c in (key_cache, value_cache))
        key[first:last] = numbers(keys, k_scales)
        value[first:last] = numbers(values, v_scales)


def paged_attention_v1(
    out: torch.Tensor,
    workspace_buffer: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    scale: float,
    block_tables: torch.Tensor,
    cu_query_lens: torch.Tensor,
    context_lens: torch.Tensor,
    max_context_len: int,
    alibi_slopes: torch.Tensor | None,
    kv_cache_dtype: str,
    kv_cache_layout: str,
    logits_soft_cap: float,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    *_rest: object,
) -> None:
    """Decode rows of one token over caches `[B, N, H, D]`."""
    assert kv_cache_layout == "NHD"
    _decode(out, query, key_cache, value_cache, block_tables, context_lens, scale, k_scale, v_scale)


def paged_attention_common(
    *,
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    K_QScale_hip: torch.Tensor,
    V_QScale_hip: torch.Tensor,
    out_: torch.Tensor,
    **_rest: object,
) -> None:
    """Decode rows of one token over the shuffled cache."""
    sides = shuffled_as_pages(K, V)
    _decode(out_, Q, *sides, block_tables, context_lens, scale, K_QScale_hip, V_QScale_hip)


def _decode(
    out: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    for row in range(len(query)):
        length = int(context_lens[row])
        keys = numbers(pages(key_cache, block_tables[row], length), k_scale)
        values = numbers(pages(value_cache, block_tables[row], length), v_scale)
        out[row] = attend(query[row : row + 1], keys, values, scale)[0][0]
