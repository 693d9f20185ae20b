"""Kernels of stock that compute decode attention: executed, and timed by the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.foreign.launch import Sampled
from hk_backend.lab.foreign.triton_driver import TritonGpu
from hk_backend.lab.stock.batches import Batch, error_of
from hk_backend.lab.stock.kernel import launch_apart
from hk_backend.lab.timing.launch import spread
from hk_backend.terms.attention_arguments import AttentionArguments


class Step(NamedTuple):
    """A layer's attention in a decode step, with all that an engine makes once for a step.

    Args:
        run: calls the engine's function, which launches its kernels and writes `out`.
        work: work of each workgroup of a launch, by grid; any unit.
    """

    run: Callable[[], None]
    work: Callable[[Sequence[int]], NDArray[np.float64]]


@dataclass(frozen=True)
class StockDecode:
    """A kernel of an engine for decode attention (`Kernel` of a `Batch`).

    No two of its workgroups read the same keys, so that one of each amount of work is traced.

    Args:
        name: the engine and its backend, as a user chooses them.
        layout: layout of the cache, one of `batches`.
        prepare: makes a step; its own launches are not timed.
        lacks: why the engine does not use this kernel for a batch; empty: it does.
        elsewhere: why this backend computes a batch with a kernel that is not run here; empty: it
            does not.
    """

    gpu: TritonGpu
    name: str
    layout: str
    prepare: Callable[[AttentionArguments], Step]
    lacks: Callable[[Batch], str] = lambda batch: ""
    elsewhere: Callable[[Batch], str] = lambda batch: ""

    def refuses(self, of: Batch) -> str:
        return self.lacks(of)

    def error(self, of: Batch) -> float:
        given = of.arguments(self.layout)
        self.prepare(given).run()
        return error_of(given.out, given)

    def microseconds(self, of: Batch) -> float:
        step = self.prepare(of.arguments(self.layout, seed=None))

        def sampled(grid: Sequence[int]) -> Sampled:
            work = step.work(grid)
            return Sampled(work, spread(work), of.flops)

        with self.gpu.timing(sampled) as launches:
            step.run()
        return sum(launch_apart(each.modelled) for each in launches if each.modelled)


def in_parts(keys: NDArray[np.int64], part: NDArray[np.int64], parts: int) -> NDArray[np.float64]:
    """Keys of each part of each request, `[parts, requests]`, where a part has at most `part`."""
    begins = np.arange(parts)[:, None] * part
    return np.asarray(np.clip(keys - begins, 0, part), dtype=np.float64)
