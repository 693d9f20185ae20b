"""Launches of the attention_decode kernels: a few query tokens of each request, over many keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels import decode_plan
from hk_backend.kernels.entry import KernelEntry
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


FEWEST = 8
"""Tiles of a share, of which some workgroups have none if there are fewer."""
BEGIN, JOIN = 2, 0.125
"""Tiles of keys that take as long as the begin of a request, and as joining a partial result."""


class Piece(NamedTuple):
    """A workgroup's tiles of one request."""

    share: int
    request: int
    tiles: int
    parts: int
    first_share: int

    @property
    def is_last(self) -> bool:
        """Whether it ends a request that others have begun."""
        return self.parts > 1 and self.share == self.first_share + self.parts - 1


def deal(entry: KernelEntry, shape: Shape, shares: int) -> Iterator[Piece]:
    """The pieces of all workgroups of a KV head, as the kernel deals them."""
    tiles = np.array([max(-(-keys // entry.tile.columns), 1) for keys in shape.keys])
    ends = np.cumsum(tiles + BEGIN)
    used = min(int(ends[-1]) // FEWEST + 1, shares)
    each, more = divmod(int(ends[-1]), used)
    begins = np.array([share * each + min(share, more) for share in range(used + 1)])
    owners = np.searchsorted(begins, np.arange(int(ends[-1])), side="right") - 1
    for request, (end, count) in enumerate(zip(ends, tiles, strict=True)):
        found, own = np.unique(owners[end - count : end], return_counts=True)
        for share, tiles_there in zip(found.tolist(), own.tolist(), strict=True):
            yield Piece(share, request, tiles_there, len(found), int(found[0]))


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`. A request's last share joins what others have left of it."""
    kv_heads = shape.kv_heads
    planned = decode_plan.shares(entry, len(shape.queries), kv_heads, COMPUTE_UNITS)
    shares = shape.shares or planned
    pieces = list(deal(entry, shape, shares))
    of_share = np.zeros(shares)
    for piece in pieces:
        joins = JOIN * piece.parts if piece.is_last else 0.0
        of_share[piece.share] += piece.tiles + BEGIN + joins
    work = np.repeat(of_share, kv_heads)
    # each sample has another KV head, whose counters make it the last one of the requests it ends
    samples = [first + turn % kv_heads for turn, first in enumerate(spread(work))]
    arrived: NDArray[np.int32] = buffers.zeros((shares, kv_heads), np.int32)
    for piece in pieces:
        for sample in samples:
            share, head = divmod(sample, kv_heads)
            if piece.is_last and piece.share == share:
                arrived[piece.first_share, head] = piece.parts - 1
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
