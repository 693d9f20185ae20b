"""Torch versions of the attention kernels of SGLang's `triton` backend, which compute in float32.

Triton's interpreter takes seconds for each call of SGLang's own kernels. Whole engines run those
(test_engines.py). A cell of the matrix of defaults runs these, for its decode rows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from tests.integration.shared.attention.torch_kernels import attend, rows

T = torch.Tensor
KERNELS = "sglang.kernels.ops.attention"


def install() -> None:
    """Put the kernels where SGLang imports them from, before it makes its `triton` backend."""
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
    """A kernel that calls `kernel` if the keys, its argument `buffer`, are `[slots, kv_heads, D]`.

    Otherwise it calls SGLang's `own`, which also reads pages that AITER has shuffled.
    """

    def call(*args: Any, **named: Any) -> None:
        (kernel if args[buffer].dim() == 3 else own)(*args, **named)

    return call


def decode_attention_fwd(
    q: T, k_buffer: T, v_buffer: T, o: T, kv_indptr: T, kv_indices: T, *rest: Any, **named: Any
) -> None:
    """Decode of one query a row over buffers `[slots, kv_heads, D]`.

    With a window the indices hold no keys outside of it.
    """
    assert named.get("page_size", 1) == 1, named
    *_splits, sm_scale, k_scale, v_scale = rest[:7]
    mask = {"sinks": named.get("sinks"), "soft_cap": named.get("logit_cap", 0.0)}
    for row, (begin, end) in enumerate(rows(kv_indptr[: len(q) + 1])):
        slots = kv_indices[begin:end].long()
        key, value = k_buffer[slots].float() * k_scale, v_buffer[slots].float() * v_scale
        o[row], _ = attend(q[row : row + 1], key, value, sm_scale, **mask)


def extend_attention_fwd(*tensors_and_facts: Any, **named: Any) -> None:
    """Prefill of packed new tokens, with the tokens before them in buffers `[slots, kv_heads, D]`.

    `sliding_window_size`: keys before its own that a query sees; -1: all. Drafts are chains, for
    which `custom_mask` says the same as causality.
    """
    q, *new, o, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices = tensors_and_facts[:9]
    custom_mask, is_causal, mask_indptr, _longest, *scales, scale = tensors_and_facts[9:]
    assert is_causal
    assert named.get("page_size", 1) == 1, named
    mask = {"sinks": named.get("sinks"), "soft_cap": named.get("logit_cap", 0.0)}
    mask["window"] = named.get("sliding_window_size", -1) + 1
    starts, cached = rows(qo_indptr), rows(kv_indptr[: len(qo_indptr)])
    for request, ((first, last), (begin, end)) in enumerate(zip(starts, cached, strict=True)):
        slots = kv_indices[begin:end].long()
        key, value = (
            torch.cat([buffer[slots].float() * factor, fresh[first:last].float()])
            for buffer, factor, fresh in zip((k_buffer, v_buffer), scales, new, strict=True)
        )
        if custom_mask is not None:
            count, (start, stop) = last - first, mask_indptr[request : request + 2].tolist()
            seen = custom_mask[start:stop].view(count, -1)[:, -count:].bool()
            assert torch.equal(seen, torch.ones(count, count, dtype=torch.bool).tril()), "a tree"
        o[first:last], _ = attend(q[first:last], key, value, scale, **mask)
