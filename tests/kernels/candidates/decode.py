"""Launches and modelled times of the candidates of decode attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, decode_plan
from hk_backend.kernels.decode_plan import Piece
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import Launch, spread, trace
from hk_backend.lab.timing.workloads import attention_decode, buffers
from hk_backend.lab.timing.workloads.attention_decode import COMPUTE_UNITS, Shape
from hk_backend.lab.timing.workloads.attention_prefill.launch import arguments

SHIPPED = "attention_decode_bf16_d128_paged_r64"
PIECE_JOINS = 0.25
"""Tiles of keys that take as long as the join of one partial result."""
BATCHES = (
    *(
        (f"{requests} x 8k", attention_decode.batch(requests, 8192))
        for requests in (1, 32, 128, 256)
    ),
    ("1 x 128k", attention_decode.batch(1, 131072)),
    ("1 x 128k, 255 x 100", Shape([1] * 256, [131072] + [100] * 255, 32, 8)),
    ("1 x 128k, heads 8/1", attention_decode.batch(1, 131072, 8, 1)),
)


def by_name(candidates: Sequence[KernelEntry]) -> dict[str, KernelEntry]:
    """The candidates of bf16 by the name of their join."""
    own = (entry for entry in candidates if entry.facts["dtype"] == "bf16")
    return {str(entry.facts["mask"]): entry for entry in own}


def launch(entry: KernelEntry, shape: Shape, joins: bool, places: int = 1) -> Launch:
    """A launch in which the last share of a request `joins` all of its parts, or nobody does.

    `places`: how many times the room of the shipped kernel's partial results it has.
    """
    heads = shape.kv_heads
    shares = decode_plan.shares(entry, heads, COMPUTE_UNITS)
    pieces = attention_decode.dealt(entry, shape, shares)
    of_share = np.zeros(shares)
    for piece in pieces:
        joined = PIECE_JOINS * piece.parts if joins and _is_last(piece) else 0
        of_share[piece.share] += piece.tiles + attention_decode.BEGIN + joined
    work = np.repeat(of_share, heads)
    samples = [first + turn % heads for turn, first in enumerate(sorted(spread(work)))]
    arrived: NDArray[np.int32] = buffers.zeros((shares, heads), np.int32)
    for sample in samples:
        share, head = divmod(sample, heads)
        for piece in pieces:
            if joins and piece.parts > 1 and piece.share == share:
                arrived[piece.first_share, head] += piece.parts * _is_last(piece) - 1
    return _launch(entry, shape, work, samples, arrived, places)


def merge_launch(entry: KernelEntry, left: KernelEntry, shape: Shape) -> Launch:
    """The launch that joins what that of `left` has left."""
    shares = decode_plan.shares(left, shape.kv_heads, COMPUTE_UNITS)
    joined = np.zeros(shares)
    for piece in attention_decode.dealt(left, shape, shares):
        if piece.share != piece.first_share:
            joined[piece.share] = piece.parts
    work = np.repeat(joined, shape.kv_heads)
    arrived: NDArray[np.int32] = buffers.zeros((shares, shape.kv_heads), np.int32)
    return _launch(entry, shape, work, spread(work), arrived, 1)


def _launch(
    entry: KernelEntry,
    shape: Shape,
    work: NDArray[np.float64],
    samples: Sequence[int],
    arrived: NDArray[np.int32],
    places: int,
) -> Launch:
    shares, heads = arrived.shape
    arrays, numbers = arguments(entry, shape, set(range(min(len(shape.keys), 32))))
    room = places * decode_plan.partial_bytes(entry, shares, heads)
    arrays |= {"arrived": arrived, "partial": buffers.zeros((room // 4,), np.float32)}
    numbers["shares"] = shares
    return buffers.launch_of(entry, arrays, numbers, work, samples)


def _is_last(piece: Piece) -> bool:
    return piece.parts > 1 and piece.share == piece.first_share + piece.parts - 1


def table(shipped: KernelEntry, candidates: Mapping[str, KernelEntry]) -> Iterator[str]:
    """Lines of modelled microseconds, without the launch: the tree that ships, then candidates."""
    parameters = _emulator.TimingParameters(shipped.arch)
    apart, gap = float(parameters["launch"]), float(parameters["dependent_gap"])

    def time(launch: Launch) -> float:
        return float(model.time(trace(launch, threads=1)).microseconds) - apart

    last, left, added, merge = (candidates[name] for name in ("last", "left", "added", "merge"))
    yield "| modelled us | tree (ships) | last | left, merge | added |"
    yield "| --- | --- | --- | --- | --- |"
    for name, shape in BATCHES:
        times = (
            time(attention_decode.launch(shipped, shape)),
            time(launch(last, shape, joins=True)),
            time(launch(left, shape, joins=False)) + gap + time(merge_launch(merge, left, shape)),
            time(launch(added, shape, joins=True, places=2)),
        )
        yield f"| {name} | {' | '.join(f'{each:.1f}' for each in times)} |"
