"""The work of each workgroup of an attention launch, as csrc/include/hk/grid.hpp deals it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import GROUPED
from hk_backend.lab.timing.workloads.attention_prefill.shape import Shape
from hk_backend.lab.timing.workloads.gemm import XCDS

EVEN_REQUESTS = 64
"""Most requests for which all requests may get equally many slots (csrc/include/hk/grid.hpp)."""


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
