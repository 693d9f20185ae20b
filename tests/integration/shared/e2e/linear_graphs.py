"""Linear layers of an engine in graphs that the emulated GPU replays.

A GPU replays an engine's pieces between attention in the same way. Engines capture nothing on a
CPU, so here each layer is a graph. A first call with so many rows warms up, and a second one is
captured. Every later one is a replay, which runs none of HK's Python. The depth of each tile is
split, where it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from hk_backend.devices.hip import emulated
from hk_backend.devices.hip.call import Work
from hk_backend.devices.hip.emulated import EmulatedLibrary, EmulatedMemory
from hk_backend.engine.linear import route
from hk_backend.kernels.gemm_plan import Candidate, candidates
from hk_backend.measurements import launches
from tests.devices.hip.graph import Graph
from tests.devices.hip.hip_calls import stream

Call = Callable[..., torch.Tensor]


class CapturedMemory(EmulatedMemory):
    """Memory in which a graph's tensors stay mapped, on a stream of its own."""

    def __init__(self, library: EmulatedLibrary, name: str) -> None:
        super().__init__(library, name)
        self.library = library
        self.graphs = stream(library, non_blocking=True)
        self.capturing = False
        self.kept: list[Mapping[str, torch.Tensor]] = []

    def stream(self, index: int) -> int:
        return self.graphs if self.capturing else 0

    @contextmanager
    def addresses(
        self, tensors: Mapping[str, torch.Tensor], work: Work
    ) -> Iterator[dict[str, int]]:
        if not self.capturing:
            with super().addresses(tensors, work) as found:
                yield found
            return
        self.kept.append(tensors)
        there = {name: tensor for name, tensor in tensors.items() if tensor.numel()}
        yield {name: self.library.map(tensor, name) for name, tensor in there.items()}


class Piece:
    """The graph of one call: it writes `out` from the contents of `x`."""

    def __init__(self, compute: Call, x: torch.Tensor, *rest: Any) -> None:
        memory: Any = emulated.emulated_device("gfx950").memory
        self.x = x.clone()
        self.graph = Graph(memory.library, memory.graphs)
        memory.capturing = True
        with self.graph.capture():
            self.out = compute(self.x, *rest)
        memory.capturing = False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.x.copy_(x)
        self.out.fill_(torch.nan)
        self.graph.replay()
        return self.out.clone()


def linear_in_graphs() -> None:
    """Replay the linear layers of the emulated device that the engine makes next."""
    emulated.EmulatedMemory = CapturedMemory  # type: ignore[misc]
    emulated.emulated_device.cache_clear()
    launches.Launches.choose = halves  # type: ignore[method-assign, assignment]
    route._routed_linear = in_graphs(route._routed_linear)


def in_graphs(compute: Call) -> Call:
    pieces: dict[object, Piece | None] = {}

    def routed(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        values = (each.data_ptr() if isinstance(each, torch.Tensor) else each for each in rest)
        key = (x.shape, x.dtype, *map(str, values))
        if key not in pieces:
            pieces[key] = None
            return compute(x, *rest)
        piece = pieces[key]
        if piece is None:
            piece = pieces[key] = Piece(compute, x, *rest)
        return piece(x)

    return routed


def halves(*shape: Any) -> Candidate:
    """The quickest candidate with two splits, if there is one."""
    _, *sizes = shape
    return min(candidates(*sizes), key=lambda found: (found.splits != 2, found.microseconds))
