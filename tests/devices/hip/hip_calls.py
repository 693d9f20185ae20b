"""HIP functions that only tests call, and small kernels that are launched through them."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.kernels import Catalogue
from hk_backend.kernels.arguments import Arguments, Field
from tests.devices.hip.small_kernels import BLOCK

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)

SUCCESS = 0
INVALID_VALUE = 1
INVALID_MEMCPY_DIRECTION = 21
INVALID_DEVICE_FUNCTION = 98
ILLEGAL_STATE = 401
NOT_READY = 600
HOST_MEMORY_ALREADY_REGISTERED = 712
HOST_MEMORY_NOT_REGISTERED = 713
LAUNCH_FAILURE = 719
CAPTURE_UNSUPPORTED = 900
CAPTURE_INVALIDATED = 901
CAPTURE_UNJOINED = 904
CAPTURE_IMPLICIT = 906


def pointer(library: EmulatedLibrary, function: str, *arguments: object) -> int:
    """Calls a function whose first argument receives a handle or an address."""
    found = c_void_p()
    library.call(function, byref(found), *arguments)
    return found.value or 0


def malloc(library: EmulatedLibrary, size: int) -> int:
    return pointer(library, "hipMalloc", c_size_t(size))


def stream(library: EmulatedLibrary, non_blocking: bool = False) -> int:
    return pointer(library, "hipStreamCreateWithFlags", int(non_blocking))


def event(library: EmulatedLibrary) -> int:
    return pointer(library, "hipEventCreate")


def code(library: EmulatedLibrary, function: str, *arguments: object) -> int:
    """Calls a function, and returns its error code unchecked."""
    return int(getattr(library.dll, function)(*arguments))


def read(library: EmulatedLibrary, address: int, count: int) -> list[int]:
    """Reads `count` 32-bit numbers from the device's memory, after a wait for the null stream."""
    host = (c_int * count)()
    size = c_size_t(ctypes.sizeof(host))
    library.call("hipMemcpy", host, c_void_p(address), size, DEVICE_TO_HOST)
    return list(host)


COUNT = 100
"""The default number of values that a test fills."""


def function(library: EmulatedLibrary, small: Catalogue, name: str) -> int:
    entry = small.kernel(name)
    return library.function(library.load(entry), entry.symbol)


FIELDS = {
    **dict.fromkeys(("records", "results", "memory"), "pointer"),
    **dict.fromkeys(("bytes", "workgroups", "steps", "waves", "stride"), "int32"),
}
OFFSETS = dict(zip(FIELDS, (0, 8, 16, 24, 28, 32, 36, 40), strict=True))
FILL_STRUCT = Arguments(
    48, tuple(Field(name, type, OFFSETS[name]) for name, type in FIELDS.items())
)
"""The struct of `fill`, hk::MeasureArgs, with signed numbers."""


def fill_values(out: int | None, value: int, count: int) -> dict[str, int | None]:
    """The fields of `FILL_STRUCT` to fill `count` numbers."""
    unused = {"records": None, "memory": None, "waves": 0, "stride": 0}
    blocks = -(-count // BLOCK)
    return {"results": out, "bytes": value, "workgroups": blocks, "steps": count, **unused}


def fill(
    library: EmulatedLibrary,
    handle: int,
    out: int,
    value: int,
    count: int = COUNT,
    on: int = 0,
    grid: int | None = None,
) -> None:
    """Enqueues the kernel `fill`."""
    values = fill_values(out, value, count)
    blocks = -(-count // BLOCK) if grid is None else grid
    library.launch(handle, (blocks, 1, 1), BLOCK, 0, on, FILL_STRUCT.pack(values))
