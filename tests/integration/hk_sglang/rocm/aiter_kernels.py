"""Torch versions of AITER's kernels beneath SGLang's `aiter` backend, which compute in float32.

AITER compiles its kernels itself, and no package index at hand has it. SGLang addresses the pool by
tokens (`kv_indices`, pages of one) or by pages (`block_table`).
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

T = torch.Tensor


def install() -> None:
    """Put the kernels where SGLang imports them from, before it imports its `aiter` backend."""
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
    q: T, k: T, v: T, cu_seqlens_q: T, kv_indptr: T, kv_page_indices: T, *_longest: int, **rest: Any
) -> T:
    """CK's prefill; keys are `[slots, kv_heads, D]`.

    `window_size[0]`: keys before the query; -1: all.
    """
    starts = rows(cu_seqlens_q), rows(kv_indptr)
    slots = [kv_page_indices[begin:end].long() for begin, end in starts[1]]
    mask = {"sinks": rest["sink_ptr"], "soft_cap": rest["logits_soft_cap"]}
    mask["window"] = rest["window_size"][0] + 1
    parts = [(k[each], v[each]) for each in slots]
    return _packed(q, starts[0], parts, q.shape[-1] ** -0.5, rest, **mask)


def flash_attn_varlen_fp8_pertensor_func(
    q: T,
    k: T,
    v: T,
    q_descale: T,
    k_descale: T,
    v_descale: T,
    *starts_and_longest: Any,
    **rest: Any,
) -> T:
    """Prefill over packed keys and values in FP8."""
    of_queries, of_keys = map(rows, starts_and_longest[:2])
    parts = [(k[begin:end], v[begin:end]) for begin, end in of_keys]
    scales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    return _packed(q, of_queries, parts, rest["softmax_scale"], scales)


def _packed(
    q: T, starts: Any, parts: list[tuple[T, T]], scale: float, scales: Any, **mask: Any
) -> T:
    """Attention of each row of packed queries over its keys and values; FP8 gives bfloat16."""
    out = torch.empty(q.shape, dtype=torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype)
    for (first, last), (k, v) in zip(starts, parts, strict=True):
        query, key, value = (
            numbers(tensor, scales.get(f"{name}_descale"))
            for name, tensor in {"q": q[first:last], "k": k, "v": v}.items()
        )
        out[first:last], _ = attend(query, key, value, scale, **mask)
    return out


def static_per_tensor_quant(output: T, numbers: T, scale: T) -> None:
    """Quantise `numbers` to FP8 by the given scale."""
    output.copy_((numbers / scale).to(output.dtype))


def sgl_per_tensor_quant_fp8(numbers: T, output: T, scale: T, is_static: bool) -> None:
    """SGLang's name for the same kernel on other platforms than ROCm."""
    assert is_static
    static_per_tensor_quant(output, numbers, scale)


def paged_attention_ragged(
    out: T, _workspace: T, query: T, key_cache: T, value_cache: T, scale: float, *rest: Any
) -> None:
    """Decode; keys are `[slots, 1, kv_heads, D]`."""
    kv_indptr, kv_page_indices, *_, soft_cap, k_scale, v_scale, _fp8_out_scale, _partition = rest
    for i, (begin, end) in enumerate(rows(kv_indptr[: len(query) + 1])):
        slots = kv_page_indices[begin:end].long()
        key, value = (
            numbers(cache[slots, 0], descale)
            for cache, descale in ((key_cache, k_scale), (value_cache, v_scale))
        )
        out[i : i + 1], _ = attend(query[i : i + 1], key, value, scale, soft_cap=soft_cap)


def pa_decode_gluon(*, output: T, query: T, key_cache: T, value_cache: T, **rest: Any) -> None:
    """Decode; keys `[pages, kv_heads, D/x, page_size, x]`, values `[.., page_size/x, D, x]`."""
    keys, values = shuffled_as_pages(key_cache, value_cache)
    for i, length in enumerate(rest["context_lengths"].tolist()):
        table = rest["block_tables"][i]
        output[i : i + 1], _ = attend(
            query[i : i + 1],
            numbers(pages(keys, table, length), rest["key_scale"]),
            numbers(pages(values, table, length), rest["value_scale"]),
            rest["softmax_scale"],
            window=rest["sliding_window"],
            sinks=rest["sinks"],
        )


def get_recommended_splits(requests: int, kv_heads: int) -> int:
    """Number of parts into which decode splits the keys."""
    return 1
