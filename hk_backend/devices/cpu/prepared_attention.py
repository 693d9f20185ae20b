"""Attention calls of the cpu device that differ from a checked one in addresses and rows.

Checking a call takes longer than a decode step's attention over a short context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.terms.attention_arguments import AttentionArguments, DecodeArguments
from hk_backend.terms.attention_step import AttentionStep

if TYPE_CHECKING:
    from hk_backend._cpu import AttentionCall

# Packed keys and values count as one endless block of tokens (layout of CacheView, see _packed).
_ENDLESS = 2**62
SPLIT_ELEMENTS = 2**15
"""Fewest key elements worth a split of their own (csrc/cpu/attention/attention_plan.hpp)."""

Vectors = tuple[torch.Tensor | None, ...]
"""A call's own vectors, contiguous: sinks, ALiBi slopes, scales of keys and of values."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a call as the extension takes them.

    Args:
        addresses: of query_start_loc, key_start_loc, seq_lens and block_table.
        requests: number of requests.
        columns: row stride and columns of the block table.
        most: most query tokens of a request; 0: any.
        kept: the tensors at the addresses.
    """

    addresses: tuple[int, int, int, int]
    requests: int
    columns: tuple[int, int]
    most: int
    kept: Vectors

    @classmethod
    def of(
        cls,
        query_start_loc: torch.Tensor,
        key_start_loc: torch.Tensor | None,
        seq_lens: torch.Tensor | None,
        block_table: torch.Tensor | None,
        most: int,
    ) -> Rows:
        """Copies what is not contiguous."""
        if block_table is not None and block_table.shape[1] > 1 and block_table.stride(1) != 1:
            block_table = block_table.contiguous()
        vectors = (_contiguous(each) for each in (query_start_loc, key_start_loc, seq_lens))
        starts, key_starts, lengths = vectors
        columns = (0, 0) if block_table is None else (block_table.stride(0), block_table.shape[1])
        kept = starts, key_starts, lengths, block_table
        addresses = address(starts), address(key_starts), address(lengths), address(block_table)
        return cls(addresses, query_start_loc.shape[0] - 1, columns, most, kept)

    def given(self, tokens: int, kv_tokens: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The last two arguments of `AttentionCall.run`, for tensors of so many tokens."""
        return self.addresses, (self.requests, tokens, kv_tokens, *self.columns, self.most)


def rows_of(of: AttentionArguments) -> Rows:
    """The rows of a checked call."""
    most = of.max_query_len if isinstance(of, DecodeArguments) else 0
    return Rows.of(of.query_start_loc, of.key_start_loc, of.seq_lens, of.block_table, most)


def call_of(on: Extension, of: AttentionArguments) -> tuple[AttentionCall, Vectors]:
    """A checked call without its addresses and rows, and the vectors that it points to."""
    query, out, lse, cache = of.query, of.out, of.lse, of.paged_kv
    key, value = of.stored()
    if cache is not None:
        kv_heads, blocks = cache.num_kv_heads, (cache.num_blocks, cache.block_size)
        key_layout: Sequence[int] = cache.key.as_ints()
        value_layout: Sequence[int] = cache.value.as_ints()
    else:
        kv_heads, blocks = key.shape[1], (0, 0)
        key_layout, value_layout = _packed(key), _packed(value)
    scale, value_factor, k_scale, v_scale = of.factors()
    sinks, slopes = _contiguous(of.sinks), _contiguous(of.alibi_slopes)
    call = on.kernels.AttentionCall(
        on.isa,
        SPLIT_ELEMENTS,
        on.dtypes[query.dtype],
        on.dtypes[key.dtype],
        (query.shape[1], kv_heads, query.shape[2], of.value_size),
        query.stride(),
        key_layout,
        value_layout,
        blocks,
        (address(sinks), address(slopes)),
        (address(k_scale), address(v_scale)),
        (_scale_stride(k_scale), _scale_stride(v_scale)),
        scale,
        value_factor,
        of.causal,
        of.sliding_window or 0,
        of.logits_soft_cap or 0.0,
        out.stride(),
        (0, 0) if lse is None else lse.stride(),
    )
    return call, (sinks, slopes, k_scale, v_scale)


@dataclass(frozen=True, slots=True)
class PreparedAttention:
    """A checked call of a layer, to be repeated for other rows.

    Args:
        paged: whether keys and values are a cache, whose number of blocks stays the same. Else they
            have a row for each token of a step.
        layouts: layouts of the call's tensors, without the tokens of a step.
        offsets: bytes from the given key and value to where the call reads.
        kept: vectors that the call points to.
    """

    call: AttentionCall
    paged: bool
    layouts: tuple[Any, ...]
    offsets: tuple[int, int]
    kept: Vectors

    @classmethod
    def of(
        cls, on: Extension, of: AttentionArguments, tensors: Sequence[torch.Tensor | None]
    ) -> PreparedAttention | None:
        """Prepares the repetition of a call.

        Args:
            tensors: query, key, value and out, in the form in which later calls hand them over.

        Returns:
            None if a repetition would not see the same: it writes no log-sum-exp, takes keys of as
            many tokens as queries, and does not copy the layer's vectors again.
        """
        call, kept = call_of(on, of)
        copied = kept[0] is not of.sinks or kept[1] is not of.alibi_slopes
        if of.lse is not None or of.key_start_loc is not None or copied:
            return None
        paged = of.paged_kv is not None
        given = tensors[1], tensors[2]
        offsets = tuple(
            read.data_ptr() - address(tensor)
            for read, tensor in zip(of.stored(), given, strict=True)
        )
        return cls(call, paged, _layouts(tensors, paged), (offsets[0], offsets[1]), kept)

    def launch(self, step: AttentionStep | None, tensors: Sequence[torch.Tensor | None]) -> bool:
        assert step is not None
        query, key, value, out = tensors
        assert query is not None
        assert out is not None
        tokens = step.num_tokens
        if _layouts(tensors, self.paged) != self.layouts or min(len(query), len(out)) < tokens:
            return False
        kv_tokens = 0
        if not self.paged:
            assert key is not None
            assert value is not None
            kv_tokens = min(len(key), len(value))
            if kv_tokens < tokens:
                return False
        rows = step.derived.get(_KEY[self.paged])
        if rows is None:
            given = (step.seq_lens, step.block_table) if self.paged else (None, None)
            rows = Rows.of(step.query_start_loc, None, *given, step.max_query_len or 0)
            step.derived[_KEY[self.paged]] = rows
        at, value_at = self.offsets
        addresses = address(query), address(key) + at, address(value) + value_at, address(out), 0
        self.call.run(torch.get_num_threads(), addresses, *rows.given(tokens, kv_tokens))
        return True


_KEY = (Rows, False), (Rows, True)
"""Keys of a step's rows among what devices derive from it, without and with a cache."""


def _layouts(tensors: Sequence[torch.Tensor | None], paged: bool) -> tuple[Any, ...]:
    """Layouts of query, key, value and out, without the number of rows that belongs to a step."""
    return tuple(
        None
        if tensor is None
        else (
            tensor.shape if paged and place in (1, 2) else tensor.shape[1:],
            tensor.stride(),
            tensor.dtype,
            tensor.is_cpu,
        )
        for place, tensor in enumerate(tensors)
    )


def _contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return tensor if tensor is None or tensor.is_contiguous() else tensor.contiguous()


def _packed(tensor: torch.Tensor) -> tuple[int, ...]:
    """Layout of `[tokens, heads, channels]` as a cache with one endless block."""
    token, head, channel = tensor.stride()
    return (0, head, 0, token, 0, channel, _ENDLESS, _ENDLESS)


def _scale_stride(scale: torch.Tensor | None) -> int:
    return 0 if scale is None or scale.shape[0] == 1 else scale.stride(0)
