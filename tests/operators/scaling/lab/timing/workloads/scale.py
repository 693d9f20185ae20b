"""Launches of the scale kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hk_backend.kernels.entry import KernelEntry, pack_arguments
from hk_backend.lab.timing.family import ModelledFamily
from hk_backend.lab.timing.launch import Launch
from hk_backend.lab.timing.sizes import LONGEST, number
from hk_backend.lab.timing.workloads import buffers


@dataclass(frozen=True)
class Shape:
    """x [rows, columns]."""

    rows: int
    columns: int


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`, with zeros."""
    size = shape.rows, shape.columns
    arrays = {name: buffers.zeros(size, np.float32) for name in ("x", "out")}
    machine, kernel, addresses = buffers.machine_with(entry, arrays)
    numbers = {"rows": shape.rows, "columns": shape.columns, "factor": 2.0}
    argument = pack_arguments(entry, **addresses, **numbers)
    grid = entry.workgroups(argument)
    moved = float(sum(array.nbytes for array in arrays.values()))
    work = np.ones(grid[0] * grid[1])
    what = machine, kernel, grid, entry.block, argument, entry.dynamic_lds, work, [0]
    return Launch(*what, bytes=moved, keep_alive=arrays)


def parse(entry: KernelEntry, items: Mapping[str, str]) -> tuple[Shape, str]:
    """The shape of these sizes, and the same in words."""
    rows, columns = (number(items, name, LONGEST) for name in SIZES)
    return Shape(rows, columns), f"{rows} x {columns}"


SIZES = ("rows", "columns")
FAMILY = ModelledFamily(
    launch,
    small=lambda entry: Shape(1, entry.tile.columns),
    sizes=SIZES,
    parse=parse,
    shapes=lambda entry: {"64x4096": Shape(64, 4096)},
    uncompared="it is an example",
)
