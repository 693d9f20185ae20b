"""Capture and replay of graphs on the emulated HIP library, in torch's way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from enum import IntEnum

import torch

from hk_backend.devices.hip.emulated import EmulatedLibrary
from tests.devices.hip.hip_calls import pointer


class Mode(IntEnum):
    """Capture modes, the values of hipStreamCaptureMode."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class Graph:
    """A graph captured on `stream`, to be launched there any number of times."""

    def __init__(self, library: EmulatedLibrary, stream: int) -> None:
        self.library = library
        self.stream = stream
        self.handle = 0
        self.executable = 0

    @contextmanager
    def capture(self, mode: Mode = Mode.GLOBAL) -> Iterator[None]:
        """A context: work that is enqueued in it becomes the graph."""
        self.library.call("hipStreamBeginCapture", c_void_p(self.stream), mode)
        yield
        self.handle = end(self.library, self.stream)
        self.executable = instantiate(self.library, self.handle)

    def launch(self) -> None:
        """Enqueues the graph."""
        self.library.call("hipGraphLaunch", c_void_p(self.executable), c_void_p(self.stream))

    def replay(self) -> None:
        """Launches the graph, and waits for it."""
        self.launch()
        self.library.synchronise(self.stream)

    def node_types(self) -> list[int]:
        """The hipGraphNodeType of each node: 0 kernel, 1 copy, 2 fill, 4 graph."""
        count = c_size_t()
        self.library.call("hipGraphGetNodes", c_void_p(self.handle), None, byref(count))
        nodes = (c_void_p * count.value)()
        self.library.call("hipGraphGetNodes", c_void_p(self.handle), nodes, byref(count))
        return [node_type(self.library, node or 0) for node in nodes]


@dataclass(frozen=True)
class Launch:
    """A launch of HK's, captured the way an engine captures it: each time on the same tensors.

    Args:
        enqueue: makes it, and returns what it writes.
        tensors: what it reads, by name; overwritten in place between replays.
        check: compares what was written with the reference of `tensors` as they are now, and fails.
    """

    enqueue: Callable[[], torch.Tensor]
    tensors: Mapping[str, torch.Tensor]
    check: Callable[[torch.Tensor], None]


def check_replays(
    library: EmulatedLibrary,
    stream: int,
    launch: Launch,
    others: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    """Captures `launch` on `stream`, the device's current one, and replays it with `others`.

    Each of `others` replaces the contents of the launch's tensors. A replay is one call of the HIP
    library: no Python of HK's runs.
    """
    launch.enqueue()  # the kernel's first use, never allowed in a capture
    library.synchronise(stream)
    ran = runs(library)
    graph = Graph(library, stream)
    with graph.capture():
        out = launch.enqueue()
    library.call("hipDeviceSynchronize")
    assert runs(library) == ran, "it ran while it was captured"
    calls = library.launch_calls()
    for tensors in others:
        assert tensors.keys() == launch.tensors.keys()
        for name, tensor in tensors.items():
            launch.tensors[name].copy_(tensor)
        out.fill_(torch.nan)
        graph.replay()
        launch.check(out)
    assert library.launch_calls() == calls, "a replay is no launch of HK's"


def runs(library: EmulatedLibrary) -> int:
    """The number of launches that have run."""
    return sum(kernel["launches"] for kernel in library.report()["kernels"].values())


def end(library: EmulatedLibrary, stream: int) -> int:
    """Ends a capture, and returns the handle of its graph."""
    graph = c_void_p()
    library.call("hipStreamEndCapture", c_void_p(stream), byref(graph))
    return graph.value or 0


def instantiate(library: EmulatedLibrary, graph: int) -> int:
    return pointer(library, "hipGraphInstantiate", c_void_p(graph), None, None, c_size_t(0))


def node_type(library: EmulatedLibrary, node: int) -> int:
    found = c_int(-1)
    library.call("hipGraphNodeGetType", c_void_p(node), byref(found))
    return found.value
