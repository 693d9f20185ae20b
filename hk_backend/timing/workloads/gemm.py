"""Launches of the GEMM kernels: C = A B^T."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hk_backend.kernels.entry import KernelEntry, pack_arguments
from hk_backend.timing.model import Launch
from hk_backend.timing.workloads import buffers

XCDS = 8
"""As csrc/include/hk/grid.hpp deals workgroups."""


@dataclass(frozen=True)
class Shape:
    """C [m, n] = A [m, k] B [n, k]^T. Raises `ValueError` for sizes that are not positive."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; valid: 1 or more")


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """`entry` on `shape`. The operands are zeros: time does not depend on them."""
    m, n, k = shape.m, shape.n, shape.k
    k_row = -(-k // 8) * 8  # rows begin at multiples of 16 bytes
    arrays = {
        "a": buffers.zeros((m, k_row), np.uint16),
        "b": buffers.zeros((n, k_row), np.uint16),
        "c": buffers.zeros((m, -(-n // 8) * 8), np.uint16),
    }
    machine, kernel, addresses = buffers.machine_with(entry, arrays)
    grid = entry.grid(m=m, n=n, k=k)
    columns = -(-n // entry.tile.columns)
    tiles = grid[0]
    near = [t for t in (0, 1, columns, columns + 1) if t < tiles]  # share rows, columns
    rows = {"a_row": k_row, "b_row": k_row, "c_row": arrays["c"].shape[1]}
    return Launch(
        machine,
        kernel,
        grid,
        entry.block,
        pack_arguments(entry, **addresses, **rows, m=m, n=n, k=k),
        entry.dynamic_lds,
        np.ones(tiles),
        sorted({workgroup_of(tile, tiles) for tile in near}),
        2.0 * m * n * k,
        2.0 * (m * k + n * k + m * n),
        keep_alive=arrays,
    )


def workgroup_of(tile: int, tiles: int) -> int:
    """The inverse of `neighbours_on_one_xcd` in csrc/include/hk/grid.hpp."""
    if tiles % XCDS:
        return tile
    return tile % (tiles // XCDS) * XCDS + tile // (tiles // XCDS)
