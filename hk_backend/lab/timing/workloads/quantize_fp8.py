"""Launches of the quantize_fp8 kernels: x [m, k] to FP8 codes and scales."""

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
from hk_backend.lab.timing.workloads.gemm import SCALE_BLOCK


@dataclass(frozen=True)
class Shape:
    """x [m, k], contiguous. Raises `ValueError` for sizes that are not positive."""

    m: int
    k: int

    def __post_init__(self) -> None:
        positive(m=self.m, k=self.k)


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`. x is zeros: any finite x takes as long.

    A given scale is one scale of the whole tensor.
    """
    m, k = shape.m, shape.k
    scale = entry.facts["scale"]
    columns = -(-k // SCALE_BLOCK) if scale == "block" else 1
    arrays = {
        "x": buffers.zeros((m, k), np.uint32 if entry.facts["x"] == "f32" else np.uint16),
        "codes": buffers.zeros((m, k), np.uint8),
        "scales": buffers.zeros((1 if scale == "given" else m, columns), np.float32),
    }
    arrays["scales"][:1] = 1
    work = workgroups(entry, shape)
    samples = sorted({*spread(work), min(1, len(work) - 1)})
    shifts = {"row_shift": 31, "column_shift": 31}
    # gemm kernels read scales in this order: those of one block of columns lie together
    numbers = {"x_row": k, "m": m, "k": k, **shifts, "scale_row": 1, "scale_column": m}
    return buffers.launch_of(entry, arrays, numbers, work, samples)


def workgroups(entry: KernelEntry, shape: Shape) -> NDArray[np.float64]:
    """Number of elements of each workgroup: its tile's rows, times its columns or all columns."""
    rows = _shares(shape.m, entry.tile.rows)
    if str(entry.facts["scale"]).startswith("token"):
        return rows * shape.k
    return np.outer(_shares(shape.k, entry.tile.columns), rows).ravel()


def _shares(length: int, tile: int) -> NDArray[np.float64]:
    """Lengths of the tiles that `length` is cut into."""
    return np.minimum(tile, length - np.arange(0, length, tile)).astype(np.float64)


def small(entry: KernelEntry) -> Shape:
    """Two rows, each a little shorter than the columns of a workgroup."""
    return Shape(2, entry.tile.columns - 8)


def parse(entry: KernelEntry, items: Mapping[str, str]) -> tuple[Shape, str]:
    """The shape of these sizes, and the same in words. Raises `ValueError`."""
    m, k = (number(items, name, LONGEST) for name in SIZES)
    return Shape(m, k), f"m={m}, k={k}"


SIZES = ("m", "k")
STANDARD = {"16384x8192": Shape(16384, 8192), "16x8192": Shape(16, 8192)}
FAMILY = ModelledFamily(launch, small, SIZES, parse, shapes=lambda entry: STANDARD, error=MEMORY)
