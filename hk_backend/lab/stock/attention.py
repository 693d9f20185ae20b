"""Kernels of stock that compute prefill attention: executed, and timed by the clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.foreign.launch import Sampled
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.batches import Batch, error_of
from hk_backend.lab.stock.kernel import launch_apart, tolerating
from hk_backend.lab.timing.launch import spread
from hk_backend.terms.attention_arguments import AttentionArguments

AMOUNTS = 8
"""Number of different amounts of work that are traced in a launch."""


@dataclass(frozen=True)
class StockAttention:
    """A kernel of an engine for prefill attention (`Kernel` of a `Batch`).

    Args:
        name: the engine and its backend, as a user chooses them.
        layout: layout of the cache, one of `batches`.
        run: calls the engine's function, which launches the kernel and writes `out`.
        work: work of each workgroup of the launch, by grid; any unit.
        near: distance in the grid of two workgroups that read the same keys.
        lacks: why the kernel does not take a batch; empty: it does.
        checked: the batch whose result is held against float64, in place of one that it lacks.
        tolerated: checks whose findings do not make a right result wrong.
    """

    gpu: TritonGpu
    name: str
    layout: str
    run: Callable[[AttentionArguments], None]
    work: Callable[[Batch, Sequence[int]], NDArray[np.float64]]
    near: Callable[[Sequence[int]], int]
    lacks: Callable[[Batch], str] = lambda batch: ""
    checked: Callable[[Batch], Batch] = lambda batch: batch
    tolerated: Collection[str] = ()

    def refuses(self, of: Batch) -> str:
        return self.lacks(of)

    def error(self, of: Batch) -> float:
        given = self.checked(of).arguments(self.layout)
        with tolerating(self.gpu, self.tolerated):
            self.run(given)
        return error_of(given.out, given)

    def microseconds(self, of: Batch) -> float:
        def sampled(grid: Sequence[int]) -> Sampled:
            work = self.work(of, grid)
            samples = spread(work, AMOUNTS)
            near = self.near(grid)
            more = [number + near for number in samples if number + near < len(work)]
            return Sampled(work, sorted({*samples, *more}), of.flops)

        given = of.arguments(self.layout, seed=None)
        with self.gpu.timing(sampled) as launches:
            self.run(given)
        return sum(launch_apart(each.modelled) for each in launches if each.modelled)


def steps_of(
    batch: Batch, begins: NDArray[np.int64], tokens: int, new: int, total: int, keys: int
) -> NDArray[np.float64]:
    """Steps of workgroups whose first tokens of a request are `begins`."""
    last = total - new + np.minimum(begins + tokens, new)
    first = np.maximum(total - new + begins - batch.window + 1, 0) if batch.window else 0
    return np.asarray(np.ceil(last / keys) - np.floor(first / keys), dtype=np.float64)
