"""Launches of the attention_decode kernels: a few query tokens of each request, over many keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels import decode_plan
from hk_backend.kernels.decode_plan import Arrival, Piece
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.masks import ALL_KEYS
from hk_backend.lab.timing.calibration import MEMORY
from hk_backend.lab.timing.family import ModelledFamily
from hk_backend.lab.timing.l2 import Operands
from hk_backend.lab.timing.launch import Launch, spread
from hk_backend.lab.timing.sizes import LONGEST, MOST, ShapeError, number
from hk_backend.lab.timing.workloads import buffers
from hk_backend.lab.timing.workloads.attention_prefill import shape as prefill
from hk_backend.lab.timing.workloads.attention_prefill.launch import arguments
from hk_backend.lab.timing.workloads.attention_prefill.parse import heads_of

COMPUTE_UNITS = 256


@dataclass(frozen=True)
class Shape(prefill.Shape):
    """Requests as those of prefill.

    Args:
        shares: workgroups of a KV head; 0: as many as the device holds at once.
    """

    shares: int = 0


BEGIN, JOIN = 5.3, 4.1
"""Tiles of keys that take as long as a request's begin and end, and as a level of its tree. Neither
is a whole number, so that workgroups of equal work have equally many of each."""


def dealt(entry: KernelEntry, shape: Shape, shares: int) -> list[Piece]:
    """The pieces of all workgroups of a KV head."""
    requests = zip(shape.keys, shape.queries, strict=True)
    window = shape.window or ALL_KEYS
    tiles = [decode_plan.key_tiles(entry, keys, tokens, window) for keys, tokens in requests]
    return list(decode_plan.deal(tiles, shares, decode_plan.begin_tiles(entry)))


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`."""
    kv_heads = shape.kv_heads
    planned = decode_plan.shares(entry, kv_heads, COMPUTE_UNITS)
    shares = shape.shares or planned
    pieces = dealt(entry, shape, shares)
    of_share = np.zeros(shares)
    arrivals: list[list[Arrival]] = [[] for _ in range(shares)]
    for piece in pieces:
        own = list(piece.arrivals())
        arrivals[piece.share] += own
        joins = sum(each.joins for each in own)
        of_share[piece.share] += piece.tiles + BEGIN + JOIN * joins
    work = np.repeat(of_share, kv_heads)
    # each sample has another KV head, at whose counters all others have arrived; they run in order
    samples = [first + turn % kv_heads for turn, first in enumerate(sorted(spread(work)))]
    arrived: NDArray[np.int32] = buffers.zeros((shares, kv_heads), np.int32)
    for sample in samples:
        share, head = divmod(sample, kv_heads)
        for arrival in arrivals[share]:
            arrived[arrival.counter, head] += arrival.results * arrival.joins - 1
    seen = {sample // kv_heads for sample in samples}
    filled = {piece.request for piece in pieces if piece.share in seen}
    arrays, numbers = arguments(entry, shape, filled)
    room = decode_plan.partial_bytes(entry, shares, kv_heads)
    arrays |= {"arrived": arrived, "partial": buffers.zeros((room // 4,), np.float32)}
    numbers["shares"] = shares
    moved = shape.bytes(entry.tile.depth, arrays["key"].itemsize)
    flops = shape.flops(entry.tile.depth)
    alone = Operands(np.arange(len(work)), work * entry.tile.columns)  # nobody shares keys
    return buffers.launch_of(entry, arrays, numbers, work, samples, flops, moved, alone)


def batch(requests: int, keys: int, heads: int = 32, kv_heads: int = 8, tokens: int = 1) -> Shape:
    """A batch of requests with as many keys each."""
    return Shape([tokens] * requests, [keys] * requests, heads, kv_heads)


SIZES = ("requests", "keys", "tokens", "heads")


def parse(entry: KernelEntry, items: Mapping[str, str]) -> tuple[Shape, str]:
    """The shape of these sizes, and the same in words. Raises `ValueError`."""
    if "heads" not in items:
        raise ShapeError("heads is missing; valid: heads as in heads=32/8")
    heads, kv_heads = heads_of(items["heads"])
    requests, keys = number(items, "requests", MOST), number(items, "keys", LONGEST)
    tokens = number(items, "tokens", 16, default=1)
    words = f"{requests} requests of {keys} keys, {tokens} tokens, heads {heads}/{kv_heads}"
    return batch(requests, keys, heads, kv_heads, tokens), words


FAMILY = ModelledFamily(
    launch,
    lambda entry: Shape([1], [1024], 1, 1, shares=1),
    SIZES,
    parse,
    lambda entry: {"b128 32/8 n8192": batch(128, 8192), "b1 32/8 n8192": batch(1, 8192)},
    error=MEMORY,
)
