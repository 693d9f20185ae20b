"""The emulated library behaves as ROCm's does. Tests cover errors, memory with exact bounds,
streams, launches with their findings, and graphs with their replays."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p

import pytest

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipError
from hk_backend.kernels import Catalogue
from tests.devices.hip import hip_calls
from tests.devices.hip.graph import Graph
from tests.devices.hip.hip_calls import (
    COUNT,
    FILL_STRUCT,
    code,
    event,
    fill,
    fill_values,
    function,
    malloc,
    pointer,
    read,
    stream,
)
from tests.devices.hip.small_kernels import BLOCK, STRAY, WIDE_LDS


def test_an_error_names_the_call_and_does_not_stay_behind(library: EmulatedLibrary) -> None:
    with pytest.raises(HipError, match=r"hipSetDevice: hipErrorInvalidDevice \(101\): invalid dev"):
        library.call("hipSetDevice", 5)
    with pytest.raises(HipError, match=r"hipDeviceGetAttribute: hipErrorInvalidDevice \(101\)"):
        library.compute_units(5)
    assert code(library, "hipPeekAtLastError") == hip_calls.SUCCESS, (
        "torch would report it as its own"
    )


def test_copies_past_an_allocation_are_refused(library: EmulatedLibrary) -> None:
    data, size = (c_int * 8)(), c_size_t(20)
    device = malloc(library, 16)
    copy = ("hipMemcpy", c_void_p(device), data)
    assert code(library, *copy, size, hip_calls.HOST_TO_DEVICE) == hip_calls.INVALID_VALUE
    assert code(library, *copy, c_size_t(16), 17) == hip_calls.INVALID_MEMCPY_DIRECTION
    assert code(library, "hipMemset", c_void_p(device), 0, size) == hip_calls.INVALID_VALUE
    assert (
        code(library, "hipMemcpy", data, data, c_size_t(8), hip_calls.DEVICE_TO_HOST)
        == hip_calls.INVALID_VALUE
    )
    library.call("hipFree", c_void_p(device))
    assert code(library, "hipFree", c_void_p(device)) == hip_calls.INVALID_VALUE


def test_host_memory_is_registered_with_exact_bounds(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    host = (c_int * (COUNT + 1))(*[7] * (COUNT + 1))
    library.call("hipHostRegister", host, c_size_t(4 * COUNT), 0)
    register = ("hipHostRegister", byref(host, 8), c_size_t(4), 0)
    assert code(library, *register) == hip_calls.HOST_MEMORY_ALREADY_REGISTERED
    device = pointer(library, "hipHostGetDevicePointer", host, 0)
    assert pointer(library, "hipHostGetDevicePointer", byref(host, 12), 0) == device + 12
    handle = function(library, small, "fill")
    fill(library, handle, device, 5)
    library.synchronise(0)
    assert list(host) == [5] * COUNT + [7]
    fill(library, handle, device, 6, COUNT + 1)
    assert code(library, "hipStreamSynchronize", None) == hip_calls.LAUNCH_FAILURE
    assert host[COUNT] == 7
    library.call("hipHostUnregister", host)
    assert code(library, "hipHostUnregister", host) == hip_calls.HOST_MEMORY_NOT_REGISTERED
    found = c_void_p()
    assert (
        code(library, "hipHostGetDevicePointer", byref(found), host, 0) == hip_calls.INVALID_VALUE
    )


def test_work_runs_when_it_is_waited_for(library: EmulatedLibrary, small: Catalogue) -> None:
    """A host that does not wait sees the memory unchanged: no launch is synchronous."""
    host = (c_int * COUNT)()
    library.call("hipHostRegister", host, c_size_t(4 * COUNT), 0)
    device = pointer(library, "hipHostGetDevicePointer", host, 0)
    mine = stream(library)
    fill(library, function(library, small, "fill"), device, 5, on=mine)
    assert not any(host)
    assert code(library, "hipStreamQuery", c_void_p(mine)) == hip_calls.NOT_READY
    library.synchronise(mine)
    assert list(host) == [5] * COUNT
    assert code(library, "hipStreamQuery", c_void_p(mine)) == hip_calls.SUCCESS
    assert code(library, "hipGetLastError") == hip_calls.SUCCESS, "not ready is no error"


def test_the_null_stream_waits_for_blocking_streams(library: EmulatedLibrary) -> None:
    device = malloc(library, 8)
    blocking, free = stream(library), stream(library, non_blocking=True)
    library.call("hipMemset", c_void_p(device), 0, c_size_t(8))
    library.call("hipMemsetAsync", c_void_p(device), 7, c_size_t(4), c_void_p(blocking))
    library.call("hipMemsetAsync", c_void_p(device), 1, c_size_t(4), c_void_p(blocking))
    library.call("hipMemsetAsync", c_void_p(device + 4), 1, c_size_t(4), c_void_p(free))
    assert read(library, device, 2) == [0x01010101, 0], "in order, and not another stream's"
    library.call("hipMemsetAsync", c_void_p(device), 2, c_size_t(4), None)
    library.call("hipMemsetAsync", c_void_p(device), 3, c_size_t(4), c_void_p(blocking))
    library.synchronise(blocking)
    assert read(library, device, 1) == [0x03030303], "the null stream's work came before"


def test_synchronising_calls_are_counted(library: EmulatedLibrary) -> None:
    device, mine, done = malloc(library, 4), stream(library), event(library)
    host = c_int()
    size = c_size_t(4)
    library.call("hipEventRecord", c_void_p(done), c_void_p(mine))
    library.call("hipMemsetAsync", c_void_p(device), 1, size, c_void_p(mine))
    copy = (byref(host), c_void_p(device), size, hip_calls.DEVICE_TO_HOST)
    library.call("hipMemcpyAsync", *copy, c_void_p(mine))
    code(library, "hipStreamQuery", c_void_p(mine))
    assert library.report()["synchronising_calls"] == 0
    waiting: list[tuple[object, ...]] = [
        ("hipDeviceSynchronize",),
        ("hipStreamSynchronize", c_void_p(mine)),
        ("hipEventSynchronize", c_void_p(done)),
        ("hipMemcpy", *copy),
        ("hipMemset", c_void_p(device), 0, size),
        ("hipFree", c_void_p(device)),
    ]
    for so_far, (name, *arguments) in enumerate(waiting):
        library.call(str(name), *arguments)
        assert library.report()["synchronising_calls"] == so_far + 1, name


@pytest.mark.parametrize("known", [True, False])
def test_dynamic_lds_above_64_kib(known: bool, library: EmulatedLibrary, small: Catalogue) -> None:
    """A function needs an attribute to launch with so much dynamic LDS. ROCm before 7 has it for
    host functions only: a module's function is refused it, and launches without it."""
    library.call("hkEmulatedModuleAttributes", int(known))
    out, wide = malloc(library, 4 * BLOCK), function(library, small, "wide")
    argument = FILL_STRUCT.pack(fill_values(out, 0, BLOCK))

    def launch(size: int) -> None:
        library.launch(wide, (1, 1, 1), BLOCK, size, 0, argument)

    if known:
        with pytest.raises(HipError, match="hipErrorInvalidValue"):
            launch(WIDE_LDS)
    else:
        size = (c_void_p(wide), 8, WIDE_LDS)
        assert code(library, "hipFuncSetAttribute", *size) == hip_calls.INVALID_DEVICE_FUNCTION
    library.allow_dynamic_lds(wide, WIDE_LDS)
    assert code(library, "hipGetLastError") == hip_calls.SUCCESS, "or torch would report it"
    if known:
        with pytest.raises(HipError, match="hipErrorInvalidValue"):
            launch(WIDE_LDS + 4)
    launch(WIDE_LDS)
    assert read(library, out, BLOCK) == list(reversed(range(BLOCK)))


def test_launches_that_the_hardware_cannot_make(library: EmulatedLibrary, small: Catalogue) -> None:
    out, handle = malloc(library, 4 * COUNT), function(library, small, "fill")
    with pytest.raises(HipError, match="InvalidConfiguration"):
        fill(library, handle, out, 0, grid=0)
    argument = bytes(FILL_STRUCT.size)
    with pytest.raises(HipError, match="LaunchFailure"):  # past the kernel's launch bounds
        library.launch(handle, (1, 1, 1), 2 * BLOCK, 0, 0, argument)
    with pytest.raises(HipError, match="InvalidConfiguration"):
        library.launch(handle, (1, 1, 1), 2048, 0, 0, argument)
    library.call("hipSetDevice", 1)
    with pytest.raises(HipError, match="InvalidDevice"):  # a function of device 0
        fill(library, handle, out, 0)


def test_a_finding_fails_the_next_wait_and_is_reported(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    out, handle = malloc(library, 4 * COUNT), function(library, small, "stray")
    fill(library, handle, out, 1)  # a launch succeeds: nothing has run yet
    with pytest.raises(HipError, match=r"LaunchFailure \(719\): .*: out-of-bounds.* in stray at"):
        library.synchronise(0)
    assert code(library, "hipStreamSynchronize", None) == hip_calls.SUCCESS, "reported once"
    report = library.report()
    finding = report["findings"][0]
    assert finding["kernel"] == "stray"
    assert "store" in finding["instruction"]
    assert finding["workgroup"] == 1
    assert finding["address"] == out + 4 * COUNT
    line = 1 + next(i for i, text in enumerate(STRAY.text().splitlines()) if ".results)[i]" in text)
    assert finding["source"].endswith(f"stray.hip:{line}")
    assert report["kernels"]["stray"]["launches"] == 1
    library.forget_report()
    assert library.report() == {"synchronising_calls": 0, "findings": [], "kernels": {}}


def test_launches_that_do_nothing(library: EmulatedLibrary, small: Catalogue) -> None:
    """Such launches are counted and compute nothing. They serve to measure a launch's cost to its
    caller."""
    out, handle = malloc(library, 4 * COUNT), function(library, small, "fill")
    fill(library, handle, out, 5)
    library.run_launches(False)
    fill(library, handle, out, 6)
    assert read(library, out, COUNT) == [5] * COUNT
    assert library.launch_calls() == 2
    library.run_launches(True)
    fill(library, handle, out, 7)
    assert read(library, out, COUNT) == [7] * COUNT
    assert library.launch_calls() == 3


KERNEL, COPY, FILL, GRAPH = 0, 1, 2, 4
"""Kinds of graph nodes, the values of hipGraphNodeType."""


@pytest.fixture
def graph(library: EmulatedLibrary) -> Graph:
    return Graph(library, stream(library, non_blocking=True))


def copied(library: EmulatedLibrary, to: object, source: object, on: int) -> None:
    """Enqueues a copy of one number."""
    library.call("hipMemcpyAsync", to, source, c_size_t(4), hip_calls.DEFAULT, c_void_p(on))


def filled(library: EmulatedLibrary, to: int, value: int, on: int) -> None:
    """Enqueues a fill of one number with the byte `value`."""
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
    """A capture copies the argument's bytes: the host may overwrite them at once."""
    out, other = malloc(library, 4 * COUNT), malloc(library, 4 * COUNT)
    handle = c_void_p(function(library, small, "fill"))
    blocks = -(-COUNT // BLOCK)
    argument = (ctypes.c_int64 * 6)(0, out, 0, blocks << 32 | 5, COUNT, 0)
    size = c_size_t(48)
    extra = (c_void_p * 5)(1, ctypes.addressof(argument), 2, ctypes.addressof(size), 3)
    parameters = (c_void_p * 1)(ctypes.addressof(argument))
    given = (None, extra) if as_buffer else (parameters, None)
    grid = [c_uint(blocks), c_uint(1), c_uint(1), c_uint(BLOCK), c_uint(1), c_uint(1)]
    with graph.capture():
        launch = (handle, *grid, c_uint(0), c_void_p(graph.stream), *given)
        library.call("hipModuleLaunchKernel", *launch)
    argument[:] = 0, other, 0, 1 << 32 | 6, 1, 0
    graph.replay()
    assert read(library, out, COUNT) == [5] * COUNT


def test_a_replay_reads_the_memory_as_it_is_then(library: EmulatedLibrary, graph: Graph) -> None:
    """A replay runs copies and fills in the order of the calls, and reads the host's memory
    anew."""
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
