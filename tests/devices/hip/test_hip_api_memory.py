"""The emulated library's memory: allocated, copied, registered, with exact bounds."""

from __future__ import annotations

from ctypes import byref, c_int, c_size_t, c_void_p

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import Catalogue
from tests.devices.hip import hip_calls
from tests.devices.hip.hip_calls import (
    COUNT,
    code,
    fill,
    function,
    malloc,
    pointer,
    read,
)


def test_copies(library: EmulatedLibrary) -> None:
    data = (c_int * 4)(1, 2, 3, 4)
    first, second = malloc(library, 16), malloc(library, 16)
    size = c_size_t(16)
    library.call("hipMemcpy", c_void_p(first), data, size, hip_calls.HOST_TO_DEVICE)
    library.call("hipMemcpy", c_void_p(second), c_void_p(first), size, hip_calls.DEVICE_TO_DEVICE)
    assert read(library, second, 4) == [1, 2, 3, 4]
    library.call("hipMemcpy", c_void_p(second + 4), c_void_p(first), c_size_t(8), hip_calls.DEFAULT)
    assert read(library, second, 4) == [1, 1, 2, 4]
    library.call("hipMemset", c_void_p(second), 0, c_size_t(8))
    assert read(library, second, 4) == [0, 0, 2, 4]
    library.call("hipFree", c_void_p(first))
    library.call("hipFree", None)


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
