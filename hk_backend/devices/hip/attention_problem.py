"""The problem that an `attention_prefill` kernel must solve before its first use."""

from __future__ import annotations

from dataclasses import replace

import torch

from hk_backend import reference
from hk_backend.devices.hip.cache_form import PIECE_BYTES
from hk_backend.devices.hip.operator import Problem
from hk_backend.kernels.masks import ALIBI, CAPPED, WINDOWED
from hk_backend.kernels.row_sources import ANY_PAGES, PACKED, PAGED, SPLIT, TOKENS
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.paged_kv import PagedKV

LENGTHS = (300, 33), (300, 643)
"""Query tokens and keys of two requests. The first has several workgroups and a diagonal, the other
a cached prefix of many tiles. Neither fills its last tile."""
DECODE_LENGTHS = (1, 0, 7), (643, 5, 1300)
"""Query tokens and keys of three requests of a decode. Workgroups share the keys of two of them."""
NUM_HEADS, NUM_KV_HEADS = 4, 2
KEY_SCALES, VALUE_SCALES = (0.75, 1.25), (1.5, 0.5)
"""Scales of an FP8 cache per KV head; they differ, so that a mixed-up head is seen."""
WINDOW, SINKS = 130, (-torch.inf, 0.5, 2.0, 4.0)
"""A window that begins inside a tile of keys, past the first ones; sinks, but for one head."""
SOFT_CAP, SLOPES = 1.5, (0.5, 0.03125, 0.0, 0.125)
"""A soft cap within reach of the largest scores, and ALiBi slopes that differ by head."""
BLOCK_SIZES = {PAGED: 16, TOKENS: 1, ANY_PAGES: 12, SPLIT: 16}
"""Tokens of a block, by the kernels' fact `keys`."""


def problem_of(
    dtype: torch.dtype,
    stored: torch.dtype,
    sizes: tuple[int, int],
    keys: str,
    mask: str,
    lengths: tuple[tuple[int, ...], tuple[int, ...]] = LENGTHS,
) -> Problem:
    """A causal problem with fixed random numbers, and every feature that kernels of `mask` have.

    Keys and values are in `stored` and have `sizes` channels; `lengths` are the query tokens and
    the keys of each request. The expected answers are computed from packed keys.
    """
    problem = _problem(dtype, stored, sizes, lengths)
    if mask in WINDOWED:
        problem = replace(problem, sliding_window=WINDOW, sinks=torch.tensor(SINKS))
    if mask == CAPPED:
        problem = replace(problem, logits_soft_cap=SOFT_CAP)
    if mask == ALIBI:
        problem = replace(problem, alibi_slopes=torch.tensor(SLOPES))
    expected, expected_lse = reference.attention_prefill(problem)
    return Problem(
        problem if keys == PACKED else in_pages(problem, keys),
        {"out": (expected, largest_error), "lse": (expected_lse, _largest_difference)},
        tolerance(dtype),
    )


def _problem(
    dtype: torch.dtype,
    stored: torch.dtype,
    sizes: tuple[int, int],
    lengths: tuple[tuple[int, ...], tuple[int, ...]],
) -> AttentionArguments:
    (head_size, value_size), (queries, keys) = sizes, lengths
    random = torch.Generator().manual_seed(0)

    def normal(tokens: int, heads: int, channels: int) -> torch.Tensor:
        return torch.randn(tokens, heads, channels, generator=random)

    query = normal(sum(queries), NUM_HEADS, head_size).to(dtype)
    narrow = stored.itemsize < dtype.itemsize
    return AttentionArguments(
        query=query,
        key=normal(sum(keys), NUM_KV_HEADS, head_size).to(stored),
        value=normal(sum(keys), NUM_KV_HEADS, value_size).to(stored),
        query_start_loc=starts_of(queries),
        key_start_loc=starts_of(keys),
        out=query.new_full((*query.shape[:2], value_size), torch.nan),
        lse=torch.full((NUM_HEADS, len(query)), torch.nan),
        k_scale=torch.tensor(KEY_SCALES) if narrow else 1.0,
        v_scale=torch.tensor(VALUE_SCALES) if narrow else 1.0,
    )


def in_pages(packed: AttentionArguments, keys: str) -> AttentionArguments:
    """The same problem with keys and values in a cache `[B, N, H, D]`, or split as ROCM_ATTN does.

    Blocks are in reverse order, with NaN in unused places. Rows of keys and values are equally far
    apart.
    """
    assert packed.key_start_loc is not None
    block_size, lengths = BLOCK_SIZES[keys], packed.key_start_loc.diff()
    counts = [-(-length // block_size) for length in lengths.tolist()]
    block_table = torch.zeros(len(counts), max(counts), dtype=torch.int32)
    caches = []
    for stored in packed.stored():
        most = max(packed.query.shape[2], packed.value_size)
        shape = (sum(counts), block_size, stored.shape[1], most)
        cache = torch.full(shape, torch.nan).to(stored.dtype)[..., : stored.shape[2]]
        next_block = sum(counts)
        for request, own in enumerate(stored.split(lengths.tolist())):
            for block, rows in enumerate(own.split(block_size)):
                next_block -= 1
                block_table[request, block] = next_block
                cache[next_block, : len(rows)] = rows
        caches.append(cache)
    return replace(
        packed,
        key=None,
        value=None,
        key_start_loc=None,
        paged_kv=_split(*caches) if keys == SPLIT else _rows(*caches),
        seq_lens=lengths,
        block_table=block_table,
    )


def _rows(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    return PagedKV.from_views(keys, "B N H D", values, "B N H D")


def _split(keys: torch.Tensor, values: torch.Tensor) -> PagedKV:
    x = PIECE_BYTES // keys.element_size()
    pieces = keys.unflatten(3, (-1, x)).permute(0, 2, 3, 1, 4).contiguous()
    columns = values.permute(0, 2, 3, 1).contiguous()
    return PagedKV.from_views(pieces, "B H D/x N x", columns, "B H D N")


def starts_of(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def _largest_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().nan_to_num(nan=torch.inf).max())
