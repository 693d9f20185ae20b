"""Argument checks of the attention operators: what is wrong, named, before anything is computed.

Only shapes, dtypes, strides and devices are read here; values (a block table that points past
the cache) are checked by the device that executes, where reading them is free.
"""

from __future__ import annotations

import math

import torch

from hk_backend.ops.attention_envelope import DTYPES, FP8_DTYPES, MAX_HEAD_SIZE
from hk_backend.terms.checks import bad, check_no_grad
from hk_backend.terms.paged_kv import PagedKV


def check_arguments(
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    query_start_loc: torch.Tensor,
    key_start_loc: torch.Tensor | None,
    paged_kv: PagedKV | None,
    block_table: torch.Tensor | None,
    seq_lens: torch.Tensor | None,
    scale: float | None,
    sliding_window: int | None,
    logits_soft_cap: float | None,
    sinks: torch.Tensor | None,
    alibi_slopes: torch.Tensor | None,
    k_scale: float | torch.Tensor,
    v_scale: float | torch.Tensor,
    out: torch.Tensor,
) -> None:
    """The checks of `attention_prefill` (see there for what each argument is).

    Raises:
        ValueError: naming the argument, its value and what would be valid.
    """
    if query.dim() != 3:
        bad("query", tuple(query.shape), "the shape [tokens, num_heads, head_size]")
    _, num_heads, head_size = query.shape
    if query.dtype not in DTYPES:
        bad("query", query.dtype, "bfloat16, float16 or float32")
    if head_size % 8 or not 8 <= head_size <= MAX_HEAD_SIZE:
        bad("query", f"head_size {head_size}", f"a multiple of 8 from 8 to {MAX_HEAD_SIZE}")
    check_no_grad(query=query, key=key, value=value, sinks=sinks, out=out)
    _check_start_loc("query_start_loc", query_start_loc, query)
    requests = query_start_loc.shape[0] - 1
    if paged_kv is not None:
        num_kv_heads = _check_paged(query, key, value, paged_kv, block_table, seq_lens, requests)
        if key_start_loc is not None:
            bad("key_start_loc", "a tensor", "None with paged_kv, whose lengths are seq_lens")
    else:
        num_kv_heads = _check_packed(query, key, value, block_table, seq_lens)
        if key_start_loc is not None:
            _check_start_loc("key_start_loc", key_start_loc, query)
            if key_start_loc.shape[0] != requests + 1:
                bad("key_start_loc", tuple(key_start_loc.shape), f"{requests + 1} entries")
    if num_kv_heads < 1:
        bad("key" if paged_kv is None else "paged_kv", "0 heads", "at least 1")
    if num_heads < 1 or num_heads % num_kv_heads:
        bad("query", f"{num_heads} heads", f"a multiple of the {num_kv_heads} KV heads")
    if sliding_window is not None and sliding_window < 1:
        bad("sliding_window", sliding_window, "a positive number of keys, or None")
    if logits_soft_cap is not None and not 0 <= logits_soft_cap < math.inf:
        bad("logits_soft_cap", logits_soft_cap, "a positive number, or None")
    if scale is not None and not abs(scale) < math.inf:
        bad("scale", scale, "a finite number, or None")
    if sinks is not None:
        _check_vector("sinks", sinks, query, (num_heads,))
    if alibi_slopes is not None:
        _check_vector("alibi_slopes", alibi_slopes, query, (num_heads,))
    for name, factor in (("k_scale", k_scale), ("v_scale", v_scale)):
        if isinstance(factor, torch.Tensor):
            _check_vector(name, factor, query, (1, num_kv_heads))
        elif not abs(factor) < math.inf:  # as a comparison: torch.compile traces it
            bad(name, factor, "a finite number, or a float32 tensor")
    _check_like("out", out, query)
    _check_no_overlap("out", out)


def check_merge(
    output_a: torch.Tensor,
    lse_a: torch.Tensor,
    output_b: torch.Tensor,
    lse_b: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """The checks of `merge_attention`.

    Raises:
        ValueError: naming the argument, its value and what would be valid.
    """
    if output_a.dim() != 3:
        bad("output_a", tuple(output_a.shape), "the shape [tokens, num_heads, head_size]")
    if output_a.dtype not in DTYPES:
        bad("output_a", output_a.dtype, "bfloat16, float16 or float32")
    check_no_grad(output_a=output_a, output_b=output_b, out=out)
    _check_like("output_b", output_b, output_a)
    _check_like("out", out, output_a)
    _check_no_overlap("out", out)
    for name, lse in (("lse_a", lse_a), ("lse_b", lse_b)):
        expected = (output_a.shape[1], output_a.shape[0])
        if lse.shape != expected or lse.dtype != torch.float32 or lse.device != output_a.device:
            found = f"{lse.dtype} {tuple(lse.shape)} on {lse.device}"
            bad(name, found, f"float32 {expected} on {output_a.device}")


def _check_start_loc(name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    if tensor.dim() != 1 or tensor.shape[0] < 1:
        bad(name, tuple(tensor.shape), "the shape [requests + 1]")
    _check_int32(name, tensor, query)


def _check_int32(name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    if tensor.dtype != torch.int32:
        bad(name, tensor.dtype, "int32")
    if tensor.device != query.device:
        bad(name, tensor.device, f"the device of query, {query.device}")


def _check_packed(
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    block_table: torch.Tensor | None,
    seq_lens: torch.Tensor | None,
) -> int:
    """Packed keys and values; returns the number of KV heads."""
    if key is None or value is None:
        bad("key" if key is None else "value", None, "a tensor, or paged_kv instead of both")
    if block_table is not None or seq_lens is not None:
        name = "block_table" if block_table is not None else "seq_lens"
        bad(name, "a tensor", "None without paged_kv; packed keys take key_start_loc")
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dim() != 3 or tensor.shape[2] != query.shape[2]:
            expected = f"the shape [kv_tokens, num_kv_heads, {query.shape[2]}]"
            bad(name, tuple(tensor.shape), expected)
        if tensor.dtype != query.dtype and tensor.dtype not in FP8_DTYPES:
            bad(name, tensor.dtype, f"the dtype of query, {query.dtype}, or FP8")
        if tensor.device != query.device:
            bad(name, tensor.device, f"the device of query, {query.device}")
    if key.shape != value.shape or key.dtype != value.dtype:
        bad("value", f"{value.dtype} {tuple(value.shape)}", f"as key: {key.dtype} {key.shape}")
    return key.shape[1]


def _check_paged(
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    paged_kv: PagedKV,
    block_table: torch.Tensor | None,
    seq_lens: torch.Tensor | None,
    requests: int,
) -> int:
    """A paged cache; returns the number of KV heads."""
    if key is not None or value is not None:
        bad("key" if key is not None else "value", "a tensor", "None with paged_kv")
    if block_table is None:
        bad("block_table", None, "an int32 tensor with paged_kv")
    if seq_lens is None:
        bad("seq_lens", None, "an int32 tensor with paged_kv")
    if paged_kv.head_size != query.shape[2]:
        bad("paged_kv", f"head_size {paged_kv.head_size}", f"that of query, {query.shape[2]}")
    if paged_kv.dtype != query.dtype and paged_kv.dtype not in FP8_DTYPES:
        bad("paged_kv", paged_kv.dtype, f"the dtype of query, {query.dtype}, or FP8")
    if paged_kv.key.tensor.device != query.device:
        bad("paged_kv", paged_kv.key.tensor.device, f"the device of query, {query.device}")
    if paged_kv.block_size < 1:
        bad("paged_kv", f"block_size {paged_kv.block_size}", "at least 1")
    if block_table.dim() != 2 or block_table.shape[0] != requests:
        bad("block_table", tuple(block_table.shape), f"the shape [{requests}, max_blocks]")
    if seq_lens.dim() != 1 or seq_lens.shape[0] != requests:
        bad("seq_lens", tuple(seq_lens.shape), f"the shape [{requests}]")
    _check_int32("block_table", block_table, query)
    _check_int32("seq_lens", seq_lens, query)
    return paged_kv.num_kv_heads


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


def _check_like(name: str, tensor: torch.Tensor, like: torch.Tensor) -> None:
    if tensor.shape != like.shape or tensor.dtype != like.dtype or tensor.device != like.device:
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        bad(name, found, f"{like.dtype} {tuple(like.shape)} on {like.device}")


def _check_no_overlap(name: str, out: torch.Tensor) -> None:
    """Each axis, in the order of strides, must step past all that the smaller ones span."""
    if out.is_contiguous():
        return
    span = 1
    for stride, size in sorted(zip(out.stride(), out.shape, strict=True)):
        if size > 1:
            if stride < span:
                expected = "a tensor whose elements do not share memory"
                bad(name, f"strides {out.stride()} for the shape {tuple(out.shape)}", expected)
            span = stride * (size - 1) + span
