"""Launches of the quantize_mx kernels: x [m, k] to codes of an MX format and their scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing.calibration import MEMORY
from hk_backend.lab.timing.family import ModelledFamily
from hk_backend.lab.timing.launch import Launch, spread
from hk_backend.lab.timing.sizes import LONGEST, number, positive
from hk_backend.lab.timing.workloads import buffers

BITS = {"mxfp4": 4, "mxfp6_e2m3": 6, "mxfp6_e3m2": 6, "mxfp8": 8}
"""Bits of an element, by the kernels' fact `format`."""
BLOCK = 32
"""Elements that share a scale."""
PADDED = (32, 256)
"""Rows and columns to multiples of which packed results are padded."""
ROTATIONS = (0, 32, 64, 128)


@dataclass(frozen=True)
class Shape:
    """x [m, k], contiguous, packed for a multiplication. Raises `ValueError` for wrong sizes."""

    m: int
    k: int
    rotation: int = 0

    def __post_init__(self) -> None:
        positive(m=self.m, k=self.k)
        if self.k % max(self.rotation, BLOCK):
            raise ValueError(f"k={self.k}; valid: multiples of {max(self.rotation, BLOCK)}")
        if self.rotation not in ROTATIONS:
            raise ValueError(f"rotation={self.rotation}; valid: {', '.join(map(str, ROTATIONS))}")


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`. x is zeros: any x takes as long."""
    m, k = shape.m, shape.k
    rows, columns = (
        -(-size // multiple) * multiple for size, multiple in zip((m, k), PADDED, strict=True)
    )
    arrays = {
        "x": buffers.zeros((m, k), np.uint32 if entry.facts["x"] == "f32" else np.uint16),
        "codes": buffers.zeros((rows, columns * BITS[str(entry.facts["format"])] // 8), np.uint8),
        "scales": buffers.zeros((rows, columns // BLOCK), np.uint8),
    }
    work = workgroups(entry, shape)
    numbers = {
        "x_row": k,
        "m": m,
        "k": k,
        "rotation": shape.rotation,
        "round_scale_even": 1,
        "packed": 1,
    }
    return buffers.launch_of(entry, arrays, numbers, work, spread(work))


def workgroups(entry: KernelEntry, shape: Shape) -> NDArray[np.float64]:
    """Number of elements of each workgroup."""
    rows = _shares(shape.m, entry.tile.rows)
    return np.outer(_shares(shape.k, entry.tile.columns), rows).ravel()


def _shares(length: int, tile: int) -> NDArray[np.float64]:
    """Lengths of the tiles that `length` is cut into."""
    return np.minimum(tile, length - np.arange(0, length, tile)).astype(np.float64)


def small(entry: KernelEntry) -> Shape:
    """One tile."""
    return Shape(entry.tile.rows, entry.tile.columns)


def parse(entry: KernelEntry, items: Mapping[str, str]) -> tuple[Shape, str]:
    """The shape of these sizes, and the same in words. Raises `ValueError`."""
    m, k = (number(items, name, LONGEST) for name in ("m", "k"))
    rotation = number(items, "rotation", LONGEST) if "rotation" in items else 0
    return Shape(m, k, rotation), f"m={m}, k={k}, rotation={rotation}"


SIZES = ("m", "k", "rotation")
STANDARD = {
    "16384x8192": Shape(16384, 8192),
    "16384x8192 r64": Shape(16384, 8192, 64),
    "16x8192": Shape(16, 8192),
}
FAMILY = ModelledFamily(launch, small, SIZES, parse, shapes=lambda entry: STANDARD, error=MEMORY)
