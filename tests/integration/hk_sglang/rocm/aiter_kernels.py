"""AITER's kernels beneath SGLang's `aiter` backend, by torch: what they are asked for, in float32.

SGLang addresses the pool by tokens (`kv_indices`, pages of one) or by pages (`block_table`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from tests.integration.shared.attention.torch_kernels import (
    attend,
    numbers,
    pages,
    rows,
    shuffled_as_pages,
    unified_attention,
)


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
    for (first, last), (begin, end) in zip(rows(cu_seqlens_q), rows(kv_indptr), strict=True):
        slots = kv_page_indices[begin:end].long()
        out[first:last], _ = attend(
            numbers(q[first:last], q_descale),
            numbers(k[slots], k_descale),
            numbers(v[slots], v_descale),
            scale,
            window=window_size[0] + 1,
            sinks=sink_ptr,
            soft_cap=logits_soft_cap,
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
    for (first, last), (begin, end) in zip(rows(cu_seqlens_q), rows(cu_seqlens_k), strict=True):
        out[first:last], _ = attend(
            numbers(q[first:last], q_descale),
            numbers(k[begin:end], k_descale),
            numbers(v[begin:end], v_descale),
            softmax_scale,
        )
    return out


def static_per_tensor_quant(
    output: torch.Tensor, numbers: torch.Tensor, scale: torch.Tensor
) -> None:
    """To FP8."""
    output.copy_((numbers / scale).to(output.dtype))


def sgl_per_tensor_quant_fp8(
    numbers: torch.Tensor, output: torch.Tensor, scale: torch.Tensor, is_static: bool
) -> None:
    """What SGLang calls for the same where it is not on ROCm."""
    assert is_static
    static_per_tensor_quant(output, numbers, scale)


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
    for i, (begin, end) in enumerate(rows(kv_indptr[: len(query) + 1])):
        slots = kv_page_indices[begin:end].long()
        key, value = (
            numbers(cache[slots, 0], descale)
            for cache, descale in ((key_cache, k_scale), (value_cache, v_scale))
        )
        out[i : i + 1], _ = attend(query[i : i + 1], key, value, scale, soft_cap=soft_cap)


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
    keys, values = shuffled_as_pages(key_cache, value_cache)
    for i, length in enumerate(context_lengths.tolist()):
        output[i : i + 1], _ = attend(
            query[i : i + 1],
            numbers(pages(keys, block_tables[i], length), key_scale),
            numbers(pages(values, block_tables[i], length), value_scale),
            softmax_scale,
            window=sliding_window,
            sinks=sinks,
        )


def get_recommended_splits(requests: int, kv_heads: int) -> int:
    """Into how many parts decode splits the keys."""
    return 1
