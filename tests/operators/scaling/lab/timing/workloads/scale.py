"""Launches of the scale kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hk_backend.kernels.entry import KernelEntry
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
    numbers = {"rows": shape.rows, "columns": shape.columns, "factor": 2.0}
    work = np.ones(shape.rows * -(-shape.columns // entry.tile.columns))
    return buffers.launch_of(entry, arrays, numbers, work, [0])


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
