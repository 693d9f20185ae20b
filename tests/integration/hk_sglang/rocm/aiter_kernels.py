"""AITER's kernels beneath SGLang's `aiter` backend, by torch: what they are asked for, in float32.

SGLang addresses the pool by tokens (`kv_indices`, pages of one) or by pages (`block_table`).
"""

from __future__ import annotations

import math
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch


def install() -> None:
    """Put them where SGLang imports them from; before it imports its `aiter` backend."""
    kernels: dict[str, list[Any]] = {
        "aiter": [
            mha_batch_prefill_func,
            paged_attention_ragged,
            flash_attn_varlen_fp8_pertensor_func,
            static_per_tensor_quant,
        ],
        "aiter.ops.triton.attention.unified_attention": [unified_attention],
        "aiter.ops.triton.gluon.pa_decode_gluon": [pa_decode_gluon, get_recommended_splits],
    }
    for name, found in kernels.items():
        for kernel in found:
            setattr(import_module(name), kernel.__name__, kernel)
    types: Any = import_module("aiter.ops.triton.utils.types")
    types.e4m3_dtype = torch.float8_e4m3fn


def mha_batch_prefill_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_page_indices: torch.Tensor,
    *_longest: int,
    logits_soft_cap: float,
    window_size: tuple[int, int],
    sink_ptr: torch.Tensor | None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    **_rest: object,
) -> torch.Tensor:
    """CK's; keys `[slots, kv_heads, D]`. `window_size[0]`: keys before the query; -1: all."""
    out = torch.empty(q.shape, dtype=torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype)
    scale = q.shape[-1] ** -0.5
    for (first, last), (begin, end) in zip(_rows(cu_seqlens_q), _rows(kv_indptr), strict=True):
        slots = kv_page_indices[begin:end].long()
        out[first:last] = _attend(
            _numbers(q[first:last], q_descale),
            _numbers(k[slots], k_descale),
            _numbers(v[slots], v_descale),
            scale,
            window_size[0],
            sink_ptr,
            logits_soft_cap,
        )
    return out


def flash_attn_varlen_fp8_pertensor_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_descale: torch.Tensor,
    k_descale: torch.Tensor,
    v_descale: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *_longest: int,
    softmax_scale: float,
    **_rest: object,
) -> torch.Tensor:
    """Packed keys and values."""
    out = torch.empty(q.shape, dtype=torch.bfloat16)
    for (first, last), (begin, end) in zip(_rows(cu_seqlens_q), _rows(cu_seqlens_k), strict=True):
        out[first:last] = _attend(
            _numbers(q[first:last], q_descale),
            _numbers(k[begin:end], k_descale),
            _numbers(v[begin:end], v_descale),
            softmax_scale,
        )
    return out


def static_per_tensor_quant(
    output: torch.Tensor, numbers: torch.Tensor, scale: torch.Tensor
) -> None:
    """To FP8."""
    output.copy_((numbers / scale).to(output.dtype))


def paged_attention_ragged(
    out: torch.Tensor,
    _workspace: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    scale: float,
    kv_indptr: torch.Tensor,
    kv_page_indices: torch.Tensor,
    *rest: Any,
) -> None:
    """Decode; keys `[slots, 1, kv_heads, D]`."""
    *_, soft_cap, k_scale, v_scale, _fp8_out_scale, _partition = rest
    for i, (begin, end) in enumerate(_rows(kv_indptr[: len(query) + 1])):
        slots = kv_page_indices[begin:end].long()
        key, value = (
            _numbers(cache[slots, 0], descale)
            for cache, descale in ((key_cache, k_scale), (value_cache, v_scale))
        )
        out[i : i + 1] = _attend(query[i : i + 1].float(), key, value, scale, soft_cap=soft_cap)


def unified_attention(
    *,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seqused_k: torch.Tensor,
    softmax_scale: float,
    window_size: tuple[int, int],
    block_table: torch.Tensor,
    softcap: float,
    q_descale: torch.Tensor | None,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
    sinks: torch.Tensor | None,
    **_rest: object,
) -> None:
    """Keys `[pages, page_size, kv_heads, D]`."""
    page_size = k.shape[1]
    for i, (first, last) in enumerate(_rows(cu_seqlens_q)):
        length = int(seqused_k[i])
        pages = block_table[i, : -(-length // page_size)].long()
        out[first:last] = _attend(
            _numbers(q[first:last], q_descale),
            _numbers(k[pages].flatten(0, 1)[:length], k_descale),
            _numbers(v[pages].flatten(0, 1)[:length], v_descale),
            softmax_scale,
            window_size[0],
            sinks,
            softcap,
        )


def pa_decode_gluon(
    *,
    output: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    context_lengths: torch.Tensor,
    block_tables: torch.Tensor,
    softmax_scale: float,
    key_scale: torch.Tensor | None,
    value_scale: torch.Tensor | None,
    sinks: torch.Tensor | None,
    sliding_window: int,
    **_rest: object,
) -> None:
    """Decode; keys `[pages, kv_heads, D/x, page_size, x]`, values `[.., page_size/x, D, x]`."""
    for i, length in enumerate(context_lengths.tolist()):
        pages = block_tables[i, : -(-length // key_cache.shape[3])].long()
        key = key_cache[pages].permute(0, 3, 1, 2, 4).flatten(3, 4).flatten(0, 1)[:length]
        value = value_cache[pages].permute(0, 2, 4, 1, 3).flatten(0, 2)[:length]
        output[i : i + 1] = _attend(
            query[i : i + 1].float(),
            _numbers(key, key_scale),
            _numbers(value, value_scale),
            softmax_scale,
            sliding_window - 1,
            sinks,
        )


def get_recommended_splits(requests: int, kv_heads: int) -> int:
    """Into how many parts decode splits the keys."""
    return 1


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    window: int = -1,
    sinks: torch.Tensor | None = None,
    soft_cap: float = 0.0,
) -> torch.Tensor:
    """One request: query `[n, heads, D]`, key and value `[s, kv_heads, D]`, last tokens aligned,
    causal; `window`: keys before the query's own that it sees, -1: all."""
    group = query.shape[1] // key.shape[1]
    keys, values = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, keys) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    behind = torch.arange(len(query))[:, None] + len(key) - len(query) - torch.arange(len(key))
    hidden = (behind < 0) | ((behind > window) if window >= 0 else False)
    scores = scores.masked_fill(hidden, -math.inf)
    if sinks is not None:
        column = sinks.float()[:, None, None].expand(-1, len(query), 1)
        scores = torch.cat([scores, column], dim=2)
    weights = scores.softmax(-1)[:, :, : len(key)]
    return torch.einsum("hqk,khd->qhd", weights, values)


def _numbers(codes: torch.Tensor, descale: torch.Tensor | None) -> torch.Tensor:
    """As float32; those of FP8 times their scale."""
    if codes.dtype.itemsize > 1:
        return codes.float()
    assert descale is not None
    return codes.float() * descale.flatten()[0]


def _rows(start_loc: torch.Tensor) -> list[tuple[int, int]]:
    """First token and end of each row."""
    return list(pairwise(start_loc.tolist()))
