"""The emulated library's streams and events: order, and that nothing runs before it is awaited."""

from __future__ import annotations

from ctypes import byref, c_int, c_size_t, c_void_p

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import Catalogue
from tests.devices.hip import hip_calls
from tests.devices.hip.hip_calls import (
    COUNT,
    code,
    event,
    fill,
    function,
    malloc,
    pointer,
    read,
    stream,
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


def test_streams_know_their_device(library: EmulatedLibrary) -> None:
    mine = stream(library)
    library.call("hipSetDevice", 1)
    other = stream(library)
    assert (library.stream_device(mine), library.stream_device(other)) == (0, 1)
    assert library.stream_device(0) == 1, "the null stream is the current device's"
    library.call("hipStreamDestroy", c_void_p(mine))
    assert code(library, "hipStreamSynchronize", c_void_p(mine)) == hip_calls.CONTEXT_IS_DESTROYED
    assert code(library, "hipStreamQuery", c_void_p(0xDEAD0)) == hip_calls.CONTEXT_IS_DESTROYED


def test_a_stream_runs_in_order_and_alone(library: EmulatedLibrary) -> None:
    device = malloc(library, 8)
    first, second = stream(library, non_blocking=True), stream(library, non_blocking=True)
    for value, on in ((1, first), (2, first), (3, second)):
        library.call("hipMemsetAsync", c_void_p(device), value, c_size_t(4), c_void_p(on))
    library.synchronise(first)
    assert read(library, device, 1) == [0x02020202], "the last of its own, and not another's"
    library.synchronise(second)
    assert read(library, device, 1) == [0x03030303]


def test_the_null_stream_waits_for_blocking_streams(library: EmulatedLibrary) -> None:
    device = malloc(library, 8)
    blocking, free = stream(library), stream(library, non_blocking=True)
    library.call("hipMemset", c_void_p(device), 0, c_size_t(8))
    library.call("hipMemsetAsync", c_void_p(device), 1, c_size_t(4), c_void_p(blocking))
    library.call("hipMemsetAsync", c_void_p(device + 4), 1, c_size_t(4), c_void_p(free))
    assert read(library, device, 2) == [0x01010101, 0]
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
