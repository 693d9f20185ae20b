"""A launch to be timed, and its execution: a sample of its workgroups is traced on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hk_backend import _emulator

MOST_SAMPLES = 20
"""Lengths of workgroups that are traced; those in between are interpolated."""

Loop = tuple[int, int]
"""Byte offsets in .text: [first, second)."""


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, and what a sample of its workgroups stands for."""

    machine: _emulator.Machine
    kernel: _emulator.Kernel
    grid: Sequence[int]
    block: int
    arguments: bytes
    dynamic_lds: int
    work: NDArray[np.float64]
    """Work of each workgroup in any unit, in the order of the grid. Workgroups of equal work take
    equally long, and in between the time is linear."""
    samples: Sequence[int]
    """Workgroups to trace: several that share operands, and the least and the most work."""
    flops: float = 0.0
    """Useful operations of the whole launch."""
    bytes: float = 0.0
    """The least that it moves to or from memory."""
    keep_alive: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Traced:
    """A launch whose samples were executed: what can be replayed with any parameters."""

    launch: Launch
    trace: _emulator.Trace

    @cached_property
    def work(self) -> list[float]:
        """Work of each traced workgroup."""
        return [float(self.launch.work[number]) for number in self.trace.workgroups]

    @cached_property
    def loop(self) -> Loop:
        """The loop that executes most instructions; (0, 0): there is none."""
        return self.trace.loop


def trace(launch: Launch, threads: int = 2) -> Traced:
    """Execute the launch's samples. Raises `RuntimeError` for a kernel that cannot go on."""
    recorded = launch.machine.trace(
        launch.kernel,
        list(launch.grid),
        [launch.block],
        launch.arguments,
        workgroups=list(launch.samples),
        dynamic_lds=launch.dynamic_lds,
        threads=threads,
    )
    return Traced(launch, recorded)


def spread(work: NDArray[np.float64], most: int = MOST_SAMPLES) -> list[int]:
    """The first workgroup of each of at most `most` amounts of work: of the least two (a workgroup
    may have nothing to do at all), the most, and some in between."""
    values, first = np.unique(work, return_index=True)
    chosen = np.linspace(1, len(values) - 1, min(most, len(values))).round().astype(int)
    return [int(first[i]) for i in sorted({0, *chosen.tolist()} & set(range(len(values))))]
