"""The emulated library behaves as ROCm's: devices and errors, memory with exact bounds, streams and
events, whose work runs when it is waited for."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p

import pytest

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipError
from hk_backend.kernels import Catalogue
from tests.devices.hip import hip_calls
from tests.devices.hip.hip_calls import (
    COUNT,
    code,
    event,
    fill,
    function,
    malloc,
    number,
    pointer,
    read,
    stream,
)


@pytest.mark.parametrize(
    ("arch", "units", "lds", "features"),
    [("gfx950", 256, 160 << 10, ":sramecc+:xnack-"), ("gfx942", 304, 64 << 10, ":sramecc+:xnack-")],
)
def test_properties(
    arch: str, units: int, lds: int, features: str, library: EmulatedLibrary
) -> None:
    """At the offsets of hipDeviceProp_tR0600, which the ABI fixes."""
    library.reset(arch)
    raw = ctypes.create_string_buffer(b"\xaa" * 1500, 1500)
    library.call("hipGetDevicePropertiesR0600", raw, 0)
    data = raw.raw

    def at(offset: int, size: int) -> int:
        return int.from_bytes(data[offset : offset + size], "little")

    assert b"Instinct" in data[:256].partition(b"\0")[0]
    assert data[1160:1416].partition(b"\0")[0].decode() == arch + features
    assert at(296, 8) == at(640, 8) == lds  # sharedMemPerBlock, sharedMemPerMultiprocessor
    assert at(308, 4) == 64  # warpSize
    assert at(320, 4) == 1024  # maxThreadsPerBlock
    assert at(388, 4) == units  # multiProcessorCount
    assert data[1472:] == b"\xaa" * 28, "written past the struct"
    assert library.arch(0) == arch
    assert library.compute_units(0) == units
    for attribute, expected in ((56, 1024), (63, units), (74, lds), (87, 64), (10018, 8)):
        assert number(library, "hipDeviceGetAttribute", attribute, 0) == expected
    found = c_int()
    assert code(library, "hipDeviceGetAttribute", byref(found), 12345, 0) == hip_calls.INVALID_VALUE
    assert code(library, "hipDeviceGetAttribute", byref(found), 63, 7) == hip_calls.INVALID_DEVICE
    assert code(library, "hipGetDevicePropertiesR0600", raw, -1) == hip_calls.INVALID_DEVICE


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
    """A host that does not wait sees the memory as it was: no launch is synchronous."""
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


def test_events_order_streams(library: EmulatedLibrary) -> None:
    device = malloc(library, 4)
    first, second = stream(library, non_blocking=True), stream(library, non_blocking=True)
    done = event(library)
    assert code(library, "hipEventQuery", c_void_p(done)) == hip_calls.SUCCESS, "never recorded"
    library.call("hipMemsetAsync", c_void_p(device), 1, c_size_t(4), c_void_p(first))
    library.call("hipEventRecord", c_void_p(done), c_void_p(first))
    library.call("hipStreamWaitEvent", c_void_p(second), c_void_p(done), 0)
    library.call("hipMemsetAsync", c_void_p(device), 2, c_size_t(4), c_void_p(second))
    assert code(library, "hipEventQuery", c_void_p(done)) == hip_calls.NOT_READY
    library.synchronise(second)
    assert code(library, "hipEventQuery", c_void_p(done)) == hip_calls.SUCCESS
    library.call("hipEventSynchronize", c_void_p(done))
    library.synchronise(first)
    assert read(library, device, 1) == [0x02020202], "the wait made the first stream go first"
    library.call("hipEventDestroy", c_void_p(done))
    assert code(library, "hipEventRecord", c_void_p(done), None) == hip_calls.INVALID_HANDLE


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
