"""Launches of attention_prefill: requests of given lengths, packed or in a paged cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels.attention_plan import LaunchSizes
from hk_backend.kernels.entry import KernelEntry, pack_arguments
from hk_backend.kernels.masks import ALL_KEYS, GROUPED, PARTS
from hk_backend.kernels.row_sources import (
    ANY_PAGES,
    PACKED,
    SPLIT,
    STORED_BYTES,
    TOKENS,
    block_reciprocal,
    group_arguments,
)
from hk_backend.lab.timing.launch import Launch, spread
from hk_backend.lab.timing.workloads import buffers
from hk_backend.lab.timing.workloads.gemm import XCDS
from hk_backend.lab.toolchain.sample_launch import SOFT_CAP, split_strides

ELEMENT = 2  # bytes of an element of queries and output
SCALES = ("key_scale", "value_scale")
NEIGHBOURS = 2
"""Number of workgroups that are traced with another because they read the same keys."""
EVEN_REQUESTS = 64
"""Most requests for which all requests may get equally many slots (csrc/include/hk/grid.hpp)."""


@dataclass(frozen=True)
class Shape:
    """Requests; request i has `queries[i]` new tokens at the end of `keys[i]` tokens.

    Raises `ValueError` for lengths, heads, a block size or a window that no kernel takes.
    """

    queries: Sequence[int]
    keys: Sequence[int]
    heads: int
    kv_heads: int
    causal: bool = True
    block_size: int = 0
    """Tokens of a block of the cache; 0: the fewest that the kernel supports."""
    window: int = 0
    """Number of keys, up to its own, that a query sees; 0: all of them."""
    parts: int = 1
    """Number of parts that the keys are cut into, for a kernel that computes partial results."""

    def __post_init__(self) -> None:
        if not self.queries or len(self.queries) != len(self.keys):
            raise ValueError(
                f"queries: {len(self.queries)} lengths, keys: {len(self.keys)}; valid: as many, "
                "one or more"
            )
        pairs = zip(self.queries, self.keys, strict=True)
        if any(not 1 <= queries <= keys for queries, keys in pairs):
            raise ValueError("queries, keys: valid: one query or more, and as many keys or more")
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads}/{self.kv_heads}; valid: a multiple of KV heads")
        if self.parts < 1:
            raise ValueError(f"parts {self.parts}; valid: 1 or more")
        if self.block_size < 0:
            raise ValueError(f"block_size {self.block_size}; valid: 1 or more")
        if self.window < 0 or (self.window and not self.causal):
            raise ValueError(f"window {self.window}; valid: 1 or more, causal")

    def flops(self, head_size: int) -> float:
        """Useful FLOPs: a causal row counts the keys that it sees, its own key by half."""

        def seen(rows: int) -> float:
            """Pairs of a query and a key it sees, for `rows` queries from the first token on."""
            growing = min(rows, self.window or rows)
            return growing * (rows - growing / 2)

        pairs = sum(
            seen(k) - seen(k - q) if self.causal else q * k
            for q, k in zip(self.queries, self.keys, strict=True)
        )
        return 4.0 * self.heads * head_size * pairs

    def bytes(self, head_size: int, stored: int = ELEMENT) -> float:
        """Bytes of queries, keys, values and output, once each.

        `stored`: bytes of an element of keys and values.
        """
        seen = (
            min(k, q + self.window - 1) if self.window else k
            for q, k in zip(self.queries, self.keys, strict=True)
        )
        rows, stored_rows = self.heads * sum(self.queries), self.kv_heads * sum(seen)
        return 2.0 * head_size * (ELEMENT * rows + stored * stored_rows)


def launch_sizes(entry: KernelEntry, shape: Shape) -> LaunchSizes:
    """The sizes of a launch for the attention planner."""
    of_heads = shape.heads, shape.kv_heads, entry.tile.depth
    requests, grouped = len(shape.queries), entry.facts["mask"] in GROUPED
    window = shape.window or ALL_KEYS
    return LaunchSizes(sum(shape.queries), requests, max(shape.keys), *of_heads, grouped, window)


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepare `entry` on `shape`, with random operands where traced workgroups read them."""
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
    work, requests, *_ = dealt = workgroups(entry, shape)
    samples = _with_neighbours(spread(work), dealt, shape)
    _fill(arrays, entry, shape, {int(requests[s]) for s in samples if work[s] > 0}, paged)
    machine, kernel, addresses = buffers.machine_with(entry, arrays)
    numbers = _numbers(entry, shape, arrays)
    pointers = ("key_start_loc", "seq_lens", "block_table", "lse", "sinks", "alibi_slopes", *SCALES)
    argument = pack_arguments(entry, **{**dict.fromkeys(pointers), **addresses, **numbers})
    return Launch(
        machine,
        kernel,
        entry.workgroups(argument),
        entry.block,
        argument,
        entry.dynamic_lds,
        work,
        samples,
        shape.flops(head_size),
        shape.bytes(head_size, stored),
        keep_alive=arrays,
    )


def block_size_for(keys: str, block_size: int) -> int:
    """The block size to model a kernel with: `block_size`, or a default where it is 0.

    `keys` is the kernel's fact about where keys lie; for packed keys the block size is 0.

    Raises:
        ValueError: the kernel does not read blocks of this size.
    """
    if keys == PACKED:
        return 0
    if keys == TOKENS and block_size > 1:
        raise ValueError(f"block_size {block_size}; valid: 1")
    if keys not in (TOKENS, ANY_PAGES) and block_size % 16:
        raise ValueError(f"block_size {block_size}; valid: a multiple of 16")
    return block_size or (1 if keys == TOKENS else 16)


class Workgroups(NamedTuple):
    """Arrays over the workgroups of a launch, in the order of the grid.

    Args:
        tiles: number of key tiles that the workgroup goes through; 0: it has no query tile.
        requests: index of its request.
        keys: number of the keys that it reads, unique to a part, a KV head and a request.
    """

    tiles: NDArray[np.float64]
    requests: NDArray[np.int64]
    keys: NDArray[np.int64]
    of_tile: int
    """Number of workgroups of one query tile."""


def workgroups(entry: KernelEntry, shape: Shape) -> Workgroups:
    """The work of each workgroup, in the order of the grid."""
    columns, grouped = entry.tile.columns, entry.facts["mask"] in GROUPED
    of_token = shape.heads // shape.kv_heads if grouped else 1
    requests, numbers = query_tiles(np.array(shape.queries) * of_token, entry.tile.rows)
    there = numbers >= 0
    queries, keys = (np.array(each)[requests] for each in (shape.queries, shape.keys))
    first = numbers * entry.tile.rows // of_token
    last = np.minimum(((numbers + 1) * entry.tile.rows - 1) // of_token, queries - 1)
    tiles = -(-(keys - queries + last + 1 if shape.causal else keys) // columns)
    if shape.window:
        tiles -= np.maximum(keys - queries + first + 1 - shape.window, 0) // columns
    own = part_tiles(entry, shape)
    begin = np.arange(shape.parts) * own
    end = np.append(begin[1:], np.inf)
    seen = np.clip(np.minimum(np.where(there, tiles, 0)[:, None], end) - begin, 0, None)
    heads = np.arange(shape.heads // of_token)
    if not grouped and len(heads) % XCDS == 0:
        heads = heads.reshape(XCDS, -1).T.ravel()
    kv_heads = heads // (len(heads) // shape.kv_heads)
    requests = np.where(there, requests, 0)
    read = requests[:, None, None] * shape.kv_heads + kv_heads[:, None]
    return Workgroups(
        np.repeat(seen, len(heads), axis=0).ravel(),
        np.repeat(requests, len(heads) * shape.parts),
        (read * shape.parts + np.arange(shape.parts)).ravel(),
        len(heads) * shape.parts,
    )


def query_tiles(rows: NDArray[np.int64], tile: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The request of each slot, and the index of its query tile; below 0: the slot has no tile.

    Requests have `rows` rows; csrc/include/hk/grid.hpp deals tiles in the same way.
    """
    own, count = -(-rows // tile), len(rows)
    slots = np.arange(-(-int(rows.sum()) // tile) + count - 1)
    if 1 < count <= EVEN_REQUESTS and own.max() * count <= len(slots):
        rank, requests = np.divmod(slots, count)
        numbers = own.max() - 1 - rank
    else:
        first = np.concatenate([[0], np.cumsum(rows)[:-1]]) // tile + np.arange(count)
        requests = np.searchsorted(first, slots, "right") - 1
        numbers = own[requests] - 1 - (slots - first[requests])
    return requests, np.where(numbers < own[requests], numbers, -1)


def part_tiles(entry: KernelEntry, shape: Shape) -> int:
    """Number of key tiles of every part but the last, which has the rest."""
    keys = max(shape.keys)
    if shape.window:
        keys = min(keys, shape.window + entry.tile.rows)
    return -(-keys // (entry.tile.columns * shape.parts))


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


def _numbers(
    entry: KernelEntry, shape: Shape, arrays: dict[str, NDArray[Any]]
) -> dict[str, int | float | None]:
    keys, head_size = str(entry.facts["keys"]), entry.tile.depth
    paged = keys != PACKED
    row, kv_row = shape.heads * head_size, shape.kv_heads * head_size
    kv_head = shape.block_size * head_size if keys == SPLIT else head_size
    return {
        **dict.fromkeys(("query_token", "out_token"), row),
        **dict.fromkeys(("query_head", "out_head"), head_size),
        **dict.fromkeys(("key_head", "value_head"), kv_head),
        **dict.fromkeys(("key_token", "value_token"), kv_row),
        **split_strides(entry, shape.block_size),
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
