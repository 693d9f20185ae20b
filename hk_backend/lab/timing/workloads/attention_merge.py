"""Launches of the attention_merge kernels, which join partial results over parts of the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing.family import ModelledFamily
from hk_backend.lab.timing.launch import Launch, spread
from hk_backend.lab.timing.sizes import LONGEST, number, positive
from hk_backend.lab.timing.workloads import buffers


@dataclass(frozen=True)
class Shape:
    """Sizes of a merge: query tokens, query heads, and partial results of each row.

    Raises `ValueError` for sizes below 1.
    """

    tokens: int
    heads: int
    parts: int

    def __post_init__(self) -> None:
        positive(tokens=self.tokens, heads=self.heads, parts=self.parts)


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`, with zeros as partial results."""
    tokens, heads, parts, head_size = shape.tokens, shape.heads, shape.parts, entry.tile.depth
    arrays = {
        "partial": buffers.zeros((parts, tokens, heads, head_size), np.uint16),
        "sums": buffers.zeros((parts, 2, heads, tokens), np.float32),
        "out": buffers.zeros((tokens, heads, head_size), np.uint16),
        "query_start_loc": buffers.table([0, tokens]),
    }
    numbers = {
        "num_tokens": tokens,
        "num_heads": heads,
        "out_token": heads * head_size,
        "out_head": head_size,
        **dict.fromkeys(("lse_head", "lse_token", "key_scale_head", "value_scale_head"), 0),
        "parts": parts,
        "num_requests": 1,
        "num_kv_heads": 1,
        "scale": 1.0,
        "value_factor": 1.0,
    }
    rows = -(-tokens // entry.tile.rows)
    work = np.full(rows * heads, float(entry.tile.rows * parts))
    samples = sorted({*spread(work), min(1, len(work) - 1)})
    return buffers.launch_of(entry, arrays, numbers, work, samples)


SIZES = ("tokens", "heads", "parts")


def parse(entry: KernelEntry, items: Mapping[str, str]) -> tuple[Shape, str]:
    """The shape of these sizes, and the same in words. Raises `ValueError`."""
    sizes = {name: number(items, name, LONGEST) for name in SIZES}
    return Shape(**sizes), ", ".join(f"{size} {name}" for name, size in sizes.items())


FAMILY = ModelledFamily(
    launch,
    sizes=SIZES,
    parse=parse,
    shapes=lambda entry: {"8 heads n200, 16 parts": Shape(200, 8, 16)},
    uncompared="nobody publishes the time of so short a launch of its kind",
)
