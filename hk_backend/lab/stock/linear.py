"""Kernels of stock that multiply: executed, and timed by the clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hk_backend.lab.foreign.launch import Sampled
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.layers import Layer, Operands

SAMPLES = 4
"""Number of workgroups that are traced: neighbours, which share operands."""


@dataclass(frozen=True)
class StockLinear:
    """A kernel of an engine for linear layers.

    Args:
        name: the engine and the kernel's own name.
        formats: formats of `layers` that it takes.
        run: calls the engine's function, which launches the kernel and returns `[m, n]`.
    """

    name: str
    formats: Collection[str]
    run: Callable[[Operands], torch.Tensor]

    def refuses(self, layer: Layer) -> str:
        """Why the kernel does not take a layer; empty: it does."""
        return "" if layer.format in self.formats else f"it does not multiply {layer.format}"

    def error(self, layer: Layer) -> float:
        """The error of the kernel's result (`Operands.error_of`), executed with every check."""
        operands = layer.operands()
        return operands.error_of(self.run(operands))

    def microseconds(self, gpu: TritonGpu, layer: Layer) -> float:
        """Modelled time of the kernel's launches in a stream."""

        def sampled(grid: Sequence[int]) -> Sampled:
            count = int(np.prod(grid))
            return Sampled(np.ones(count), range(min(SAMPLES, count)), layer.flops, layer.bytes)

        operands, first = layer.operands(seed=None), len(gpu.launches)
        with gpu.timing(sampled):
            self.run(operands)
        modelled = [launch.modelled for launch in gpu.launches[first:]]
        return sum(found.stream_microseconds for found in modelled if found)
