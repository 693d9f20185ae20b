"""Attention kernels of SGLang's `triton` backend, by torch: what they are asked for, in float32.

Triton's interpreter takes seconds for each call of SGLang's own kernels. Whole engines run those
(test_engines.py); a cell of the matrix of defaults, whose decode rows they compute, runs these.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from tests.integration.shared.attention.torch_kernels import attend, rows

KERNELS = "sglang.kernels.ops.attention"


def install() -> None:
    """Put them where SGLang imports them from; before it makes its `triton` backend."""
    for module, kernel, buffer in (
        ("decode_attention", decode_attention_fwd, 1),
        ("extend_attention", extend_attention_fwd, 4),
    ):
        found = import_module(f"{KERNELS}.{module}")
        own = getattr(found, kernel.__name__)
        setattr(found, kernel.__name__, of_tokens(kernel, own, buffer))


def of_tokens(
    kernel: Callable[..., None], own: Callable[..., None], buffer: int
) -> Callable[..., None]:
    """`kernel` where its argument number `buffer`, of keys, is `[slots, kv_heads, D]`.

    Else SGLang's `own`, which also reads pages that AITER has shuffled.
    """

    def call(*args: Any, **named: Any) -> None:
        (kernel if args[buffer].dim() == 3 else own)(*args, **named)

    return call


def decode_attention_fwd(
    q: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    o: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    _attn_logits: torch.Tensor,
    _attn_lse: torch.Tensor,
    _num_kv_splits: torch.Tensor,
    _max_kv_splits: int,
    sm_scale: float,
    k_scale: float,
    v_scale: float,
    logit_cap: float = 0.0,
    sinks: torch.Tensor | None = None,
    page_size: int = 1,
    **_rest: Any,
) -> None:
    """A query a row; buffers `[slots, kv_heads, D]`. Of a window the indices hold no other keys."""
    assert page_size == 1, page_size
    for row, (begin, end) in enumerate(rows(kv_indptr[: len(q) + 1])):
        slots = kv_indices[begin:end].long()
        key, value = k_buffer[slots].float() * k_scale, v_buffer[slots].float() * v_scale
        query = q[row : row + 1]
        o[row], _ = attend(query, key, value, sm_scale, sinks=sinks, soft_cap=logit_cap)


def extend_attention_fwd(
    q_extend: torch.Tensor,
    k_extend: torch.Tensor,
    v_extend: torch.Tensor,
    o_extend: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    qo_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    custom_mask: torch.Tensor | None,
    is_causal: bool,
    mask_indptr: torch.Tensor | None,
    _max_len_extend: int,
    k_scale: float,
    v_scale: float,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
    sliding_window_size: int = -1,
    sinks: torch.Tensor | None = None,
    page_size: int = 1,
    **_rest: Any,
) -> None:
    """New tokens packed, those before them in buffers `[slots, kv_heads, D]`.

    `sliding_window_size`: keys before its own that a query sees; -1: all. Drafts are chains, for
    which `custom_mask` says the same as causality.
    """
    assert is_causal
    assert page_size == 1, page_size
    scale = sm_scale or q_extend.shape[-1] ** -0.5
    queries, cached = rows(qo_indptr), rows(kv_indptr[: len(qo_indptr)])
    for request, ((first, last), (begin, end)) in enumerate(zip(queries, cached, strict=True)):
        slots = kv_indices[begin:end].long()
        key = torch.cat([k_buffer[slots].float() * k_scale, k_extend[first:last].float()])
        value = torch.cat([v_buffer[slots].float() * v_scale, v_extend[first:last].float()])
        if custom_mask is not None:
            assert mask_indptr is not None
            count, (start, stop) = last - first, mask_indptr[request : request + 2].tolist()
            seen = custom_mask[start:stop].view(count, -1)[:, -count:].bool()
            assert torch.equal(seen, torch.ones(count, count, dtype=torch.bool).tril()), "a tree"
        o_extend[first:last], _ = attend(
            q_extend[first:last],
            key,
            value,
            scale,
            window=sliding_window_size + 1,
            sinks=sinks,
            soft_cap=logit_cap,
        )
