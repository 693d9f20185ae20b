"""Launches of attention_prefill, with random operands where traced workgroups read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import ALL_KEYS, PARTS
from hk_backend.kernels.row_sources import (
    PACKED,
    SPLIT,
    STORED_BYTES,
    block_reciprocal,
    group_arguments,
)
from hk_backend.lab.timing.l2 import Operands
from hk_backend.lab.timing.launch import Launch, spread
from hk_backend.lab.timing.workloads import buffers
from hk_backend.lab.timing.workloads.attention_prefill.shape import ELEMENT, Shape, block_size_for
from hk_backend.lab.timing.workloads.attention_prefill.workgroups import (
    Workgroups,
    part_tiles,
    workgroups,
)

SOFT_CAP = 50.0  # soft cap of Gemma 2
SCALES = ("key_scale", "value_scale")
NEIGHBOURS = 2
"""Number of workgroups that are traced with another because they read the same keys."""


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`, with random operands where traced workgroups read them."""
    work, requests, *_ = dealt = workgroups(entry, shape)
    samples = _with_neighbours(spread(work), dealt, shape)
    arrays, numbers = arguments(entry, shape, {int(requests[s]) for s in samples if work[s] > 0})
    head_size, stored = entry.tile.depth, arrays["key"].itemsize
    work_done = shape.flops(head_size), shape.bytes(head_size, stored)
    key_bytes = 2.0 * entry.tile.columns * head_size * stored
    operands = Operands(dealt.keys, dealt.tiles * key_bytes)
    return buffers.launch_of(entry, arrays, numbers, work, samples, *work_done, operands=operands)


def arguments(
    entry: KernelEntry, shape: Shape, filled: set[int]
) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    """Buffers and numbers of a launch, by the struct's fields.

    Args:
        filled: requests with random elements; those of others are zeros.
    """
    keys, head_size = str(entry.facts["keys"]), entry.tile.depth
    paged = keys != PACKED
    shape = replace(shape, block_size=block_size_for(keys, shape.block_size))
    tokens, slots = sum(shape.queries), _slots(shape, paged)
    stored = STORED_BYTES[str(entry.facts["stored"])]
    stored_type = np.uint8 if stored == 1 else np.uint16
    arrays: dict[str, NDArray[Any]] = {
        "query": buffers.zeros((tokens, shape.heads, head_size), np.uint16),
        "key": buffers.zeros((slots, shape.kv_heads, head_size), stored_type),
        "value": buffers.zeros((slots, shape.kv_heads, head_size), stored_type),
        "out": buffers.zeros((shape.parts, tokens, shape.heads, head_size), np.uint16),
        "query_start_loc": buffers.table(_starts(shape.queries)),
        **(_paged(shape) if paged else {"key_start_loc": buffers.table(_starts(shape.keys))}),
    }
    if entry.facts["mask"] in PARTS:
        arrays["lse"] = buffers.zeros((shape.parts, 2, shape.heads, tokens), np.float32)
    if stored < ELEMENT:  # one scale for the whole cache, as in engines
        arrays |= {name: buffers.zeros((1,), np.float32) for name in SCALES}
        for name in SCALES:
            arrays[name][:] = 1
    _fill(arrays, entry, shape, filled, paged)
    return arrays, _numbers(entry, shape, arrays)


def _with_neighbours(samples: list[int], dealt: Workgroups, shape: Shape) -> list[int]:
    """The samples, with workgroups that read the same keys: the next one, and some of later tiles.

    Without windows and parts, all workgroups begin with the same keys, so the first sample's
    neighbours suffice. Otherwise each sample gets its own neighbours.
    """
    having = [s for s in samples if dealt.tiles[s] > 0]
    found = dict.fromkeys(samples)
    for s in having if shape.window or shape.parts > 1 else having[:1]:
        alike = np.flatnonzero((dealt.keys == dealt.keys[s]) & (dealt.tiles > 0))
        later = alike[alike >= s + dealt.of_tile][:NEIGHBOURS]
        near = dict.fromkeys([*alike[alike > s][:1].tolist(), *later.tolist()])
        found |= dict.fromkeys(list(near)[:NEIGHBOURS])
    return list(found)


def _starts(lengths: Sequence[int]) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _slots(shape: Shape, paged: bool) -> int:
    """Number of tokens that the key and value buffers have room for."""
    if not paged:
        return sum(shape.keys)
    return shape.block_size * sum(-(-keys // shape.block_size) for keys in shape.keys)


def _paged(shape: Shape) -> dict[str, NDArray[np.int32]]:
    """Tables of a paged cache whose blocks lie in a random order, as after a while of serving."""
    counts = [-(-keys // shape.block_size) for keys in shape.keys]
    order = np.random.default_rng(0).permutation(sum(counts)).astype(np.int32)
    table = buffers.zeros((len(counts), max(counts)), np.int32)
    for request, (count, start) in enumerate(zip(counts, np.cumsum([0, *counts]), strict=False)):
        table[request, :count] = order[start : start + count]
    return {"seq_lens": buffers.table(shape.keys), "block_table": table}


def _fill(
    arrays: dict[str, NDArray[Any]],
    entry: KernelEntry,
    shape: Shape,
    requests: set[int],
    paged: bool,
) -> None:
    """Fill the first heads of `requests`, which traced workgroups read, with random elements."""
    dtype, stored = str(entry.facts["dtype"]), str(entry.facts["stored"])
    starts, key_starts = _starts(shape.queries), _starts(shape.keys)
    for request in sorted(requests):
        heads = shape.heads // shape.kv_heads
        buffers.fill(arrays["query"][starts[request] : starts[request + 1], :heads], dtype, 0)
        for seed, name in enumerate(("key", "value"), 1):
            if paged:
                count = -(-shape.keys[request] // shape.block_size)
                blocks = arrays["block_table"][request, :count]
                whole = arrays[name].reshape(-1, shape.block_size, shape.kv_heads, entry.tile.depth)
                for block in blocks:
                    buffers.fill(whole[block, :, :1], stored, seed)
            else:
                rows = slice(key_starts[request], key_starts[request + 1])
                buffers.fill(arrays[name][rows, :1], stored, seed)


def _numbers(entry: KernelEntry, shape: Shape, arrays: dict[str, NDArray[Any]]) -> dict[str, float]:
    keys, head_size = str(entry.facts["keys"]), entry.tile.depth
    paged = keys != PACKED
    row, kv_row = shape.heads * head_size, shape.kv_heads * head_size
    kv_head = shape.block_size * head_size if keys == SPLIT else head_size
    return {
        **dict.fromkeys(("query_token", "out_token"), row),
        **dict.fromkeys(("query_head", "out_head"), head_size),
        **dict.fromkeys(("key_head", "value_head"), kv_head),
        **dict.fromkeys(("key_token", "value_token"), kv_row),
        **_split_strides(entry, shape.block_size),
        **dict.fromkeys(("key_block", "value_block"), shape.block_size * kv_row),
        **dict.fromkeys(("key_scale_head", "value_scale_head"), 0),
        "lse_head": sum(shape.queries),
        "lse_token": 1,
        "block_table_row": arrays["block_table"].shape[1] if paged else 0,
        "out_part": sum(shape.queries) * row,
        "lse_part": 2 * shape.heads * sum(shape.queries),
        **group_arguments(shape.heads, shape.kv_heads),
        "parts": shape.parts,
        "part_keys": part_tiles(entry, shape) * entry.tile.columns,
        "num_requests": len(shape.queries),
        "num_tokens": sum(shape.queries),
        "num_heads": shape.heads,
        "num_kv_heads": shape.kv_heads,
        "block_size": shape.block_size,
        "block_reciprocal": block_reciprocal(keys, shape.block_size),
        "block_rows": shape.block_size,
        "num_blocks": len(arrays["key"]) // shape.block_size if paged else 0,
        "causal": int(shape.causal),
        "head_size": head_size,
        "value_size": head_size,
        "scale": head_size**-0.5,
        "value_factor": 1.0,
        "window": shape.window or ALL_KEYS,
        "soft_cap": SOFT_CAP,
    }


def _split_strides(entry: KernelEntry, block_size: int) -> dict[str, int]:
    """Strides in elements of a cache that keeps 16 bytes together, as ROCM_ATTN's does.

    Keys are `[D/x, N, x]` and values `[D, N]`. The piece strides are 0 where the kernel reads whole
    rows.
    """
    if entry.facts["keys"] != SPLIT:
        return {"key_piece": 0, "value_piece": 0}
    together = 16 // STORED_BYTES[str(entry.facts["stored"])]
    return {
        "key_token": together,
        "key_piece": together * block_size,
        "value_token": 1,
        "value_piece": block_size,
    }
