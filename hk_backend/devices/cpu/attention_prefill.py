"""`attention_prefill` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.terms.attention_arguments import AttentionArguments

# Packed keys and values count as one endless block of tokens (layout of CacheView, see _packed).
_ENDLESS = 2**62
SPLIT_ELEMENTS = 2**15
"""Fewest key elements worth a split of their own (csrc/cpu/attention/attention_plan.hpp)."""


def run(on: Extension, of: AttentionArguments) -> None:
    """Runs `attention_prefill`. The extension checks values before it writes anything.

    Raises:
        ValueError: `query_start_loc`, `key_start_loc`, `seq_lens` or `block_table` holds a value
            that points outside its tensor.
    """
    query, out, lse, cache = of.query, of.out, of.lse, of.paged_kv
    tokens, heads, head_size = query.shape
    # Locals keep these tensors alive until the call returns, as it takes bare addresses.
    vectors = [
        tensor if tensor is None or tensor.is_contiguous() else tensor.contiguous()
        for tensor in (
            of.query_start_loc,
            of.key_start_loc,
            of.seq_lens,
            of.sinks,
            of.alibi_slopes,
        )
    ]
    starts, key_starts, lengths, sinks, alibi_slopes = vectors
    key, value = of.stored()
    block_table = of.block_table
    if cache is not None:
        assert block_table is not None
        if block_table.stride(1) != 1 and block_table.shape[1] > 1:
            block_table = block_table.contiguous()
        kv_tokens, kv_heads = 0, cache.num_kv_heads
        key_layout: Sequence[int] = cache.key.as_ints()
        value_layout: Sequence[int] = cache.value.as_ints()
        columns = (block_table.stride(0), block_table.shape[1])
        blocks = (*columns, cache.num_blocks, cache.block_size)
    else:
        kv_tokens, kv_heads = key.shape[:2]
        key_layout, value_layout = _packed(key), _packed(value)
        blocks = (0, 0, 0, 0)
    scale, value_factor, k_scale, v_scale = of.factors()
    on.kernels.attention_prefill(
        on.isa,
        torch.get_num_threads(),
        SPLIT_ELEMENTS,
        on.dtypes[query.dtype],
        on.dtypes[key.dtype],
        (
            of.query_start_loc.shape[0] - 1,
            tokens,
            kv_tokens,
            heads,
            kv_heads,
            head_size,
            of.value_size,
        ),
        query.data_ptr(),
        query.stride(),
        key.data_ptr(),
        key_layout,
        value.data_ptr(),
        value_layout,
        address(starts),
        address(key_starts),
        address(lengths),
        address(block_table),
        blocks,
        address(sinks),
        address(alibi_slopes),
        address(k_scale),
        _scale_stride(k_scale),
        address(v_scale),
        _scale_stride(v_scale),
        scale,
        value_factor,
        of.causal,
        of.sliding_window or 0,
        of.logits_soft_cap or 0.0,
        out.data_ptr(),
        out.stride(),
        address(lse),
        (0, 0) if lse is None else lse.stride(),
    )


def _packed(tensor: torch.Tensor) -> tuple[int, ...]:
    """Layout of `[tokens, heads, channels]` as a cache with one endless block."""
    token, head, channel = tensor.stride()
    return (0, head, 0, token, 0, channel, _ENDLESS, _ENDLESS)


def _scale_stride(scale: torch.Tensor | None) -> int:
    return 0 if scale is None or scale.shape[0] == 1 else scale.stride(0)
