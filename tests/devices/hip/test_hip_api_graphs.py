"""The emulated library's graphs: what a capture records, and what a replay computes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p

import pytest

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipError
from hk_backend.kernels import Catalogue
from tests.devices.hip import hip_calls
from tests.devices.hip.graph import Graph
from tests.devices.hip.hip_calls import COUNT, fill, function, malloc, read, stream
from tests.devices.hip.small_kernels import BLOCK

KERNEL, COPY, FILL, GRAPH = 0, 1, 2, 4
"""hipGraphNodeType."""


@pytest.fixture
def graph(library: EmulatedLibrary) -> Graph:
    return Graph(library, stream(library, non_blocking=True))


def copied(library: EmulatedLibrary, to: object, source: object, on: int) -> None:
    """Enqueue a copy of one number."""
    library.call("hipMemcpyAsync", to, source, c_size_t(4), hip_calls.DEFAULT, c_void_p(on))


def filled(library: EmulatedLibrary, to: int, value: int, on: int) -> None:
    """Enqueue a fill of one number with the byte `value`."""
    library.call("hipMemsetAsync", c_void_p(to), value, c_size_t(4), c_void_p(on))


def test_nothing_runs_in_a_capture(
    library: EmulatedLibrary, small: Catalogue, graph: Graph
) -> None:
    out, handle = malloc(library, 4 * COUNT), function(library, small, "fill")
    library.call("hipMemset", c_void_p(out), 0, c_size_t(4 * COUNT))
    with graph.capture():
        fill(library, handle, out, 5, on=graph.stream)
    library.call("hipDeviceSynchronize")
    assert read(library, out, COUNT) == [0] * COUNT
    assert "fill" not in library.report()["kernels"]
    graph.launch()
    library.synchronise(0)
    assert "fill" not in library.report()["kernels"], "a launch of a graph does not wait"
    graph.replay()
    assert read(library, out, COUNT) == [5] * COUNT
    assert library.report()["kernels"]["fill"]["launches"] == 2
    assert library.launch_calls() == 1, "a replay calls no launch"


@pytest.mark.parametrize("as_buffer", [True, False])
def test_an_argument_is_that_of_the_capture(
    as_buffer: bool, library: EmulatedLibrary, small: Catalogue, graph: Graph
) -> None:
    """Its bytes are copied: the host may write others into the same place at once."""
    out, other = malloc(library, 4 * COUNT), malloc(library, 4 * COUNT)
    handle = c_void_p(function(library, small, "fill"))
    argument = (ctypes.c_int64 * 2)(out, COUNT << 32 | 5)
    size = c_size_t(16)
    extra = (c_void_p * 5)(1, ctypes.addressof(argument), 2, ctypes.addressof(size), 3)
    parameters = (c_void_p * 1)(ctypes.addressof(argument))
    given = (None, extra) if as_buffer else (parameters, None)
    grid = [c_uint(-(-COUNT // BLOCK)), c_uint(1), c_uint(1), c_uint(BLOCK), c_uint(1), c_uint(1)]
    with graph.capture():
        launch = (handle, *grid, c_uint(0), c_void_p(graph.stream), *given)
        library.call("hipModuleLaunchKernel", *launch)
    argument[:] = other, 1 << 32 | 6
    graph.replay()
    assert read(library, out, COUNT) == [5] * COUNT


def test_a_replay_reads_the_memory_as_it_is_then(library: EmulatedLibrary, graph: Graph) -> None:
    """Copies and fills in the order of the calls, the host's memory too."""
    host, device, out = c_int(1), malloc(library, 4), malloc(library, 8)
    with graph.capture():
        copied(library, c_void_p(device), byref(host), graph.stream)
        copied(library, c_void_p(out), c_void_p(device), graph.stream)
        filled(library, device, 3, graph.stream)
        copied(library, c_void_p(out + 4), c_void_p(device), graph.stream)
    assert graph.node_types() == [COPY, COPY, FILL, COPY]
    for value in (7, 8):
        host.value = value
        graph.replay()
        assert read(library, out, 2) == [value, 0x03030303]


def test_memory_that_is_gone_when_a_graph_is_replayed(
    library: EmulatedLibrary, small: Catalogue, graph: Graph
) -> None:
    """On a GPU another tensor's bytes, perhaps; here the wait fails."""
    out, handle = malloc(library, 4 * COUNT), function(library, small, "fill")
    with graph.capture():
        fill(library, handle, out, 1, on=graph.stream)
    copies = Graph(library, stream(library, non_blocking=True))
    with copies.capture():
        filled(library, out, 1, copies.stream)
    library.call("hipFree", c_void_p(out))
    copies.launch()
    with pytest.raises(HipError, match=r"\(700\): .*: memory of a graph's copy was freed"):
        library.synchronise(copies.stream)
    with pytest.raises(HipError, match=r"\(719\): .*out-of-bounds"):
        graph.replay()
