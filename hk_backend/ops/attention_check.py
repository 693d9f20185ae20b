"""Argument checks of `attention_prefill`, which name what is wrong before anything is computed.

The checks read only shapes, dtypes, strides and devices. The cpu device also checks values, such as
a block table that points past the cache. A GPU does not, as the host would have to wait for them.
"""

from __future__ import annotations

import math

import torch

from hk_backend.ops.attention_envelope import DTYPES, FP8_DTYPES, MAX_HEAD_SIZE, is_head_size
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.checks import bad, check_no_grad
from hk_backend.terms.paged_kv import PagedKV


def check_query(
    query: torch.Tensor, value: torch.Tensor | None, paged_kv: PagedKV | None
) -> tuple[int, int, int]:
    """Checks all that decides the output's shape, and returns the shape.

    Raises:
        ValueError: naming the argument, its value and what would be valid.
    """
    if query.dim() != 3:
        bad("query", tuple(query.shape), "the shape [tokens, num_heads, head_size]")
    head_size = query.shape[2]
    if query.dtype not in DTYPES:
        bad("query", query.dtype, "bfloat16, float16 or float32")
    if not is_head_size(head_size):
        bad("query", f"head_size {head_size}", f"a multiple of 8 from 8 to {MAX_HEAD_SIZE}")
    if paged_kv is not None:
        name, channels = "paged_kv", paged_kv.value_size
    elif value is not None and value.dim() == 3:
        name, channels = "value", value.shape[2]
    else:
        name, channels = "query", head_size
    if not is_head_size(channels):
        bad(name, f"values of {channels} channels", f"a multiple of 8 from 8 to {MAX_HEAD_SIZE}")
    return query.shape[0], query.shape[1], channels


def check_attention(of: AttentionArguments) -> None:
    """Makes all other checks of `attention_prefill`, which describes each argument.

    Raises:
        ValueError: naming the argument, its value and what would be valid.
    """
    query, num_heads = of.query, of.query.shape[1]
    check_no_grad(query=query, key=of.key, value=of.value, sinks=of.sinks, out=of.out)
    _check_start_loc("query_start_loc", of.query_start_loc, query)
    paged = of.paged_kv is not None
    num_kv_heads = _check_paged(of, of.paged_kv) if of.paged_kv is not None else _check_packed(of)
    if num_kv_heads < 1:
        bad("paged_kv" if paged else "key", "0 heads", "at least 1")
    if num_heads < 1 or num_heads % num_kv_heads:
        bad("query", f"{num_heads} heads", f"a multiple of the {num_kv_heads} KV heads")
    if of.sliding_window is not None and of.sliding_window < 1:
        bad("sliding_window", of.sliding_window, "a positive number of keys, or None")
    if of.logits_soft_cap is not None and not 0 <= of.logits_soft_cap < math.inf:
        bad("logits_soft_cap", of.logits_soft_cap, "a finite number from 0 on, or None")
    if of.scale is not None and not abs(of.scale) < math.inf:
        bad("scale", of.scale, "a finite number, or None")
    if of.max_seq_len is not None and of.max_seq_len < 0:
        bad("max_seq_len", of.max_seq_len, "a number of keys, or None")
    if of.sinks is not None:
        _check_vector("sinks", of.sinks, query, (num_heads,))
    if of.alibi_slopes is not None:
        _check_vector("alibi_slopes", of.alibi_slopes, query, (num_heads,))
    for name, factor in (("k_scale", of.k_scale), ("v_scale", of.v_scale)):
        if not isinstance(factor, float) and isinstance(factor, torch.Tensor):
            _check_vector(name, factor, query, (1, num_kv_heads))
        elif not abs(factor) < math.inf:  # written as a comparison, which torch.compile can trace
            bad(name, factor, "a finite number, or a float32 tensor")
    value_size = of.stored()[1].shape[2] if of.paged_kv is None else of.paged_kv.value_size
    check_output("out", of.out, query, (*query.shape[:2], value_size))
    check_no_overlap("out", of.out)


def _check_start_loc(name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    if tensor.dim() != 1 or tensor.shape[0] < 1:
        bad(name, tuple(tensor.shape), "the shape [requests + 1]")
    _check_int32(name, tensor, query)


def _check_int32(name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    if tensor.dtype != torch.int32:
        bad(name, tensor.dtype, "int32")
    if tensor.device != query.device:
        bad(name, tensor.device, f"the device of query, {query.device}")


def _check_packed(of: AttentionArguments) -> int:
    """Checks packed keys and values; returns the number of KV heads."""
    query, key, value = of.query, of.key, of.value
    if key is None or value is None:
        bad("key" if key is None else "value", None, "a tensor, or paged_kv instead of both")
    if of.block_table is not None or of.seq_lens is not None:
        name = "block_table" if of.block_table is not None else "seq_lens"
        bad(name, "a tensor", "None without paged_kv; packed keys take key_start_loc")
    _check_rows("key", key, query, query.shape[2])
    shape = key.shape
    if value.shape != shape or value.dtype != key.dtype or value.device != query.device:
        _check_rows("value", value, query, None)
        if value.shape[:2] != shape[:2] or value.dtype != key.dtype:
            expected = f"as key: {key.dtype} [{shape[0]}, {shape[1]}, value_size]"
            bad("value", f"{value.dtype} {tuple(value.shape)}", expected)
    if of.key_start_loc is not None:
        _check_start_loc("key_start_loc", of.key_start_loc, query)
        if of.key_start_loc.shape != of.query_start_loc.shape:
            entries = of.query_start_loc.shape[0]
            bad("key_start_loc", tuple(of.key_start_loc.shape), f"{entries} entries")
    return shape[1]


def _check_rows(name: str, tensor: torch.Tensor, query: torch.Tensor, channels: int | None) -> None:
    """Checks packed keys or values with `channels` per row; None allows any number."""
    if tensor.dim() != 3 or (channels is not None and tensor.shape[2] != channels):
        expected = "value_size" if channels is None else channels
        bad(name, tuple(tensor.shape), f"the shape [kv_tokens, num_kv_heads, {expected}]")
    if tensor.dtype != query.dtype and tensor.dtype not in FP8_DTYPES:
        bad(name, tensor.dtype, f"the dtype of query, {query.dtype}, or FP8")
    if tensor.device != query.device:
        bad(name, tensor.device, f"the device of query, {query.device}")


def _check_paged(of: AttentionArguments, cache: PagedKV) -> int:
    """Checks a paged cache; returns the number of KV heads."""
    query, requests = of.query, of.query_start_loc.shape[0] - 1
    if of.key is not None or of.value is not None:
        bad("key" if of.key is not None else "value", "a tensor", "None with paged_kv")
    if of.block_table is None:
        bad("block_table", None, "an int32 tensor with paged_kv")
    if of.seq_lens is None:
        bad("seq_lens", None, "an int32 tensor with paged_kv")
    if cache.head_size != query.shape[2]:
        bad("paged_kv", f"head_size {cache.head_size}", f"that of query, {query.shape[2]}")
    if cache.dtype != query.dtype and cache.dtype not in FP8_DTYPES:
        bad("paged_kv", cache.dtype, f"the dtype of query, {query.dtype}, or FP8")
    if cache.key.tensor.device != query.device:
        bad("paged_kv", cache.key.tensor.device, f"the device of query, {query.device}")
    if cache.block_size < 1:
        bad("paged_kv", f"block_size {cache.block_size}", "at least 1")
    if of.block_table.dim() != 2 or of.block_table.shape[0] != requests:
        bad("block_table", tuple(of.block_table.shape), f"the shape [{requests}, max_blocks]")
    if of.seq_lens.dim() != 1 or of.seq_lens.shape[0] != requests:
        bad("seq_lens", tuple(of.seq_lens.shape), f"the shape [{requests}]")
    _check_int32("block_table", of.block_table, query)
    _check_int32("seq_lens", of.seq_lens, query)
    if of.key_start_loc is not None:
        bad("key_start_loc", "a tensor", "None with paged_kv, whose lengths are seq_lens")
    return cache.num_kv_heads


def _check_vector(
    name: str, tensor: torch.Tensor, query: torch.Tensor, sizes: tuple[int, ...]
) -> None:
    if tensor.dim() != 1 or tensor.shape[0] not in sizes:
        expected = " or ".join(f"[{size}]" for size in dict.fromkeys(sizes))
        bad(name, tuple(tensor.shape), f"the shape {expected}")
    if tensor.dtype != torch.float32:
        bad(name, tensor.dtype, "float32")
    if tensor.device != query.device:
        bad(name, tensor.device, f"the device of query, {query.device}")


def check_output(
    name: str, tensor: torch.Tensor, like: torch.Tensor, shape: tuple[int, ...]
) -> None:
    if tensor.shape != shape or tensor.dtype != like.dtype or tensor.device != like.device:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        bad(name, found, f"{like.dtype} {shape} on {like.device}")


def check_no_overlap(name: str, out: torch.Tensor) -> None:
    """Checks that each axis, in the order of strides, steps past the whole span of the smaller
    ones."""
    if out.is_contiguous():
        return
    span = 1
    for stride, size in sorted(zip(out.stride(), out.shape, strict=True)):
        if size > 1:
            if stride < span:
                expected = "a tensor whose elements do not share memory"
                bad(name, f"strides {out.stride()} for the shape {tuple(out.shape)}", expected)
            span = stride * (size - 1) + span
