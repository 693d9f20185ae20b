"""Published times of rows of norms, casts and sums on an MI350X, and our kernels of their traffic.

mi350x.csv has the median of the fastest correct library at 67 of the 781 shapes in
github.com/jhinpan/flydsl-kernel-profiling-lib (bce529c, benchmarks/examples). They take at least 17
us, and have 1024 to 16384 channels in whole loads. Rows of float32 count as twice as many
channels. A launch is replayed from a graph after 256 MiB were overwritten.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hk_backend.kernels.catalogue import MEASURING, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads import buffers
from tests.lab.timing import traffic
from tests.lab.timing.traffic import Problem

FLOOR = 13.0
"""Microseconds that this harness measures for a kernel that does nothing."""
STATE = {"clock": 2.2, "infinity_cache_clean": 42, "infinity_cache_dirty": 80}
"""The GPU, and what overwriting 256 MiB leaves in its Infinity Cache."""
STREAMING = ("rmsnorm", "quant")
"""Operators whose kernels in AITER's Triton load past the caches (`.cg`: non-temporal)."""
LONG = 30.0
"""Microseconds that tell long launches from short ones."""


def rows_of(kernel: str, rows: int, channels: int) -> Problem:
    """RMSNorm (`rmsnorm`) or conversion to E4M3 (`cast_row`) of bf16 [rows, channels]."""
    norm = kernel.startswith("rmsnorm")
    arrays = {
        "x": buffers.zeros((rows, channels), np.uint16),
        "weight": buffers.zeros((channels if norm else 0,), np.uint16),
        "out": buffers.zeros((rows, channels), np.uint16 if norm else np.uint8),
        "scales": buffers.zeros((0 if norm else rows,), np.float32),
    }
    outputs = ("out",) if norm else ("out", "scales")
    return Problem(arrays, outputs, {"rows": rows, "channels": channels})


def add(count: int) -> Problem:
    """Sum of two float32 [count]."""
    arrays = {name: buffers.zeros((count,), np.float32) for name in ("x", "y", "out")}
    return Problem(arrays, ("out",), {"count": count})


@dataclass(frozen=True)
class Shape:
    """A published time. Softmax has RMSNorm's traffic; `vec_add` has one row."""

    operator: str
    rows: int
    channels: int
    library: str
    us: float

    @property
    def kernel(self) -> str:
        """The name of our kernel of the same traffic."""
        if self.operator == "vec_add":
            return "add"
        parts = next(parts for parts in (2, 4, 8) if self.channels <= 2048 * parts)
        streamed = self.operator in STREAMING and self.library == "aiter_triton"
        name = "cast_row" if self.operator == "quant" else "rmsnorm"
        return f"{name}_{parts}" + "_streamed" * streamed

    def problem(self) -> Problem:
        if self.operator == "vec_add":
            return add(self.channels)
        return rows_of(self.kernel, self.rows, self.channels)


@functools.cache
def shapes() -> tuple[Shape, ...]:
    """All shapes, by operator and time."""
    with (Path(__file__).parent / "mi350x.csv").open() as file:
        return tuple(
            Shape(row["operator"], int(row["rows"]), int(row["channels"]), row["library"], us)
            for row in csv.DictReader(file)
            for us in (float(row["us"]),)
        )


def chosen() -> tuple[Shape, ...]:
    """The shapes that parameters were chosen on: every other one."""
    return shapes()[::2]


@functools.cache
def error(shape: Shape) -> float:
    """Relative error of the model, whose launch is the harness's floor."""
    entry = catalogue("gfx950", MEASURING).select("traffic", kernel=shape.kernel)
    assert isinstance(entry, KernelEntry)
    found = model.time(trace(traffic.launch(entry, shape.problem())), STATE)
    return (found.microseconds - found.parameters["launch"] + FLOOR) / shape.us - 1
