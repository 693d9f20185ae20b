"""The emulated library behaves as ROCm's: devices, their properties, errors."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int

import pytest

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipError
from tests.devices.hip import hip_calls
from tests.devices.hip.hip_calls import (
    code,
    number,
)


def test_devices(library: EmulatedLibrary) -> None:
    library.call("hipInit", 0)
    assert library.device_count() == 2
    assert number(library, "hipGetDevice") == 0
    library.call("hipSetDevice", 1)
    assert number(library, "hipGetDevice") == 1
    assert code(library, "hipSetDevice", 2) == hip_calls.INVALID_DEVICE
    assert number(library, "hipDriverGetVersion") == number(library, "hipRuntimeGetVersion") > 0


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


def test_the_last_error_is_kept_until_it_is_read(library: EmulatedLibrary) -> None:
    assert code(library, "hipGetLastError") == hip_calls.SUCCESS
    assert code(library, "hipSetDevice", 9) == hip_calls.INVALID_DEVICE
    library.device_count()  # a success does not clear it
    assert code(library, "hipPeekAtLastError") == hip_calls.INVALID_DEVICE
    assert code(library, "hipGetLastError") == hip_calls.INVALID_DEVICE
    assert code(library, "hipGetLastError") == hip_calls.SUCCESS


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "hipSuccess"),
        (1, "hipErrorInvalidValue"),
        (209, "hipErrorNoBinaryForGpu"),
        (600, "hipErrorNotReady"),
        (709, "hipErrorContextIsDestroyed"),
        (719, "hipErrorLaunchFailure"),
        (424242, "hipErrorUnknown"),
    ],
)
def test_error_names(number: int, name: str, library: EmulatedLibrary) -> None:
    assert library.dll.hipGetErrorName(number).decode() == name
    assert library.dll.hipGetErrorString(number)


def test_an_error_names_the_call_and_does_not_stay_behind(library: EmulatedLibrary) -> None:
    with pytest.raises(HipError, match=r"hipSetDevice: hipErrorInvalidDevice \(101\): invalid dev"):
        library.call("hipSetDevice", 5)
    with pytest.raises(HipError, match=r"hipDeviceGetAttribute: hipErrorInvalidDevice \(101\)"):
        library.compute_units(5)
    assert code(library, "hipPeekAtLastError") == hip_calls.SUCCESS, (
        "torch would report it as its own"
    )
