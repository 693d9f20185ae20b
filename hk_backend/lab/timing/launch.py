"""Launches to be timed; the emulator executes and traces a sample of their workgroups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.timing.l2 import Operands

if TYPE_CHECKING:
    from hk_backend import _emulator

MOST_SAMPLES = 20
"""Largest number of amounts of work that are traced; those in between are interpolated."""

Loop = tuple[int, int]
"""Byte offsets of a loop in .text: [first, second)."""


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, the work of every workgroup, and the workgroups to trace."""

    machine: _emulator.Machine
    kernel: _emulator.Kernel
    grid: Sequence[int]
    block: int
    arguments: bytes | Sequence[Any]
    """Bytes of the kernel's arguments, or a value for each declared one."""
    dynamic_lds: int
    work: NDArray[np.float64]
    """Work of each workgroup in any unit, in the order of the grid.

    Workgroups of equal work take equally long; between traced amounts, time is linear.
    """
    samples: Sequence[int]
    """Workgroups to trace: some that share operands, and those with the least and the most work."""
    flops: float = 0.0
    """Useful floating-point operations of the whole launch."""
    bytes: float = 0.0
    """Fewest bytes that the launch must move to and from memory."""
    keep_alive: Any = field(default=None, repr=False)
    operands: Operands | None = field(default=None, repr=False)
    """Operands that workgroups of an XCD share; None: the share in the L2 is a parameter."""

    def run(self, seed: int = 0) -> _emulator.Report:
        """Executes all workgroups in the emulator, with every check on."""
        return self.machine.launch(
            self.kernel,
            list(self.grid),
            [self.block],
            self.arguments,
            dynamic_lds=self.dynamic_lds,
            seed=seed,
        )


@dataclass(frozen=True)
class Traced:
    """A launch whose samples were executed; it can be replayed with any parameters."""

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
    """Execute the launch's samples. Raises `RuntimeError` if the kernel cannot run to its end."""
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
    """The first workgroup of each of at most `most` amounts of work, to be traced.

    Chosen are the two least amounts (the least may be none at all), the most, and some in between.
    """
    values, first = np.unique(work, return_index=True)
    chosen = np.linspace(1, len(values) - 1, min(most, len(values))).round().astype(int)
    return [int(first[i]) for i in sorted({0, *chosen.tolist()} & set(range(len(values))))]
