"""Kernels of stock that multiply: executed, and timed by the clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hk_backend.lab.foreign.launch import Sampled
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.kernel import launch_apart, tolerating
from hk_backend.lab.stock.layers import Layer, Operands

SAMPLES = 4
"""Number of workgroups that are traced: neighbours, which share operands."""
NO_ACCUMULATOR = ("matrix-hazard",)
"""Checks that are wrong about scaled products whose accumulator is a constant.

The emulator takes the register of a scale for it, and wants it not to be written for a while.
"""


@dataclass(frozen=True)
class StockLinear:
    """A kernel of an engine for linear layers (`Kernel` of a `Layer`).

    Args:
        name: the engine and the kernel's own name.
        formats: formats of `layers` that it takes.
        run: calls the engine's function, which launches the kernel and returns `[m, n]`.
        lacks: why the kernel does not take a layer; empty: it does.
        checked: the layer whose result is held against float64, in place of one that it lacks.
        tolerated: checks whose findings do not make a right result wrong.
        apart: distances in the grid of the workgroups that are traced; the fastest result counts.
    """

    gpu: TritonGpu
    name: str
    formats: Collection[str]
    run: Callable[[Operands], torch.Tensor]
    lacks: Callable[[Layer], str] = lambda layer: ""
    checked: Callable[[Layer], Layer] = lambda layer: layer
    tolerated: Collection[str] = ()
    apart: Sequence[int] = (1,)

    def refuses(self, of: Layer) -> str:
        if of.format not in self.formats:
            return f"it does not multiply {of.format}"
        return self.lacks(of)

    def error(self, of: Layer) -> float:
        operands = self.checked(of).operands()
        with tolerating(self.gpu, self.tolerated):
            out = self.run(operands)
        return operands.error_of(out)

    def microseconds(self, of: Layer) -> float:
        operands = of.operands(seed=None)
        return min(self._timed(operands, apart) for apart in self.apart)

    def _timed(self, operands: Operands, apart: int) -> float:
        of = operands.layer

        def sampled(grid: Sequence[int]) -> Sampled:
            count = int(np.prod(grid))
            samples = range(0, min(SAMPLES * apart, count), apart)
            return Sampled(np.ones(count), samples, of.flops, of.bytes)

        with self.gpu.timing(sampled) as launches:
            self.run(operands)
        return sum(launch_apart(each.modelled) for each in launches if each.modelled)
