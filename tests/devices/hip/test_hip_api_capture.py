"""Captures in the emulated library: each call's effect on a capture, with ROCm's error numbers."""

from __future__ import annotations

from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p

import pytest

from hk_backend.devices.hip.emulated import EmulatedLibrary
from tests.devices.hip import hip_calls
from tests.devices.hip.graph import Mode, end
from tests.devices.hip.hip_calls import code, event, malloc, read, stream

NONE, ACTIVE, INVALIDATED = range(3)
"""States of a capture, the values of hipStreamCaptureStatus."""
SIZE = c_size_t(4)


def begin(library: EmulatedLibrary, mode: int = Mode.GLOBAL, non_blocking: bool = True) -> int:
    """Begins a capture on a new stream, and returns the stream."""
    capturing = stream(library, non_blocking)
    library.call("hipStreamBeginCapture", c_void_p(capturing), mode)
    return capturing


def status(library: EmulatedLibrary, of: int) -> int:
    found = c_int(-1)
    library.call("hipStreamIsCapturing", c_void_p(of), byref(found))
    return found.value


def ended(library: EmulatedLibrary, capturing: int) -> int:
    """Ends the capture, and returns the error code."""
    return code(library, "hipStreamEndCapture", c_void_p(capturing), byref(c_void_p()))


def fill(library: EmulatedLibrary, on: int, to: int) -> int:
    """Enqueues a fill, and returns the error code."""
    return code(library, "hipMemsetAsync", c_void_p(to), 1, SIZE, c_void_p(on))


def test_beginning_and_ending(library: EmulatedLibrary) -> None:
    numbers = set()
    for _ in range(2):
        number, state, mine = c_ulonglong(), c_int(), begin(library)
        library.call("hipStreamGetCaptureInfo", c_void_p(mine), byref(state), byref(number))
        numbers.add(number.value)
        end(library, mine)
    assert len({0, *numbers}) == 3, "each capture has one of its own"
    for name in ("hipStreamSynchronize", "hipStreamQuery"):  # there is nothing to wait for
        mine = begin(library, Mode.RELAXED)
        assert code(library, name, c_void_p(mine)) == hip_calls.CAPTURE_UNSUPPORTED
        assert ended(library, mine) == hip_calls.CAPTURE_INVALIDATED
    mine = stream(library)
    start = ("hipStreamBeginCapture", c_void_p(mine))
    assert code(library, *start, 3) == hip_calls.INVALID_VALUE
    assert code(library, "hipStreamBeginCapture", None, 0) == hip_calls.CAPTURE_UNSUPPORTED
    assert ended(library, mine) == hip_calls.ILLEGAL_STATE
    assert ended(library, 0) == hip_calls.ILLEGAL_STATE
    assert status(library, mine) == NONE
    library.call(*start, 0)
    assert status(library, mine) == ACTIVE
    assert library.is_capturing(mine)
    assert code(library, *start, 0) == hip_calls.ILLEGAL_STATE
    assert end(library, mine)
    assert status(library, mine) == NONE
    assert not library.is_capturing(mine)


WAITING: dict[str, tuple[int, tuple[object, ...]]] = {
    "hipDeviceSynchronize": (hip_calls.CAPTURE_UNSUPPORTED, ()),
    "hipMemcpy": (
        hip_calls.CAPTURE_IMPLICIT,
        (byref(c_int()), byref(c_int()), SIZE, hip_calls.DEFAULT),
    ),
    "hipMemset": (hip_calls.CAPTURE_IMPLICIT, (byref(c_int()), 0, SIZE)),
}
"""Calls that wait for the device, with the error code while anything is captured."""
UNSAFE: dict[str, tuple[object, ...]] = {
    "hipMalloc": (byref(c_void_p()), SIZE),
    "hipFree": (None,),
    "hipHostRegister": (byref(c_int()), SIZE, 0),
    "hipHostUnregister": (byref(c_int()),),
    "hipModuleUnload": (None,),
    "hipStreamSynchronize": (None,),
    "hipStreamQuery": (None,),
}
"""Calls that may wait without saying so."""


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", WAITING)
def test_waiting_for_the_device_ends_every_capture(
    name: str, mode: Mode, library: EmulatedLibrary
) -> None:
    expected, arguments = WAITING[name]
    first, second = begin(library, mode), begin(library, Mode.RELAXED)
    assert code(library, name, *arguments) == expected
    assert (status(library, first), status(library, second)) == (INVALIDATED, INVALIDATED)
    assert library.is_capturing(first), "until it is ended"
    assert fill(library, first, malloc_relaxed(library)) == hip_calls.CAPTURE_INVALIDATED
    assert ended(library, first) == ended(library, second) == hip_calls.CAPTURE_INVALIDATED
    assert status(library, first) == NONE


def malloc_relaxed(library: EmulatedLibrary) -> int:
    """Allocates in a capture the way torch does."""
    mode = c_int(Mode.RELAXED)
    library.call("hipThreadExchangeStreamCaptureMode", byref(mode))
    found = malloc(library, 4)
    library.call("hipThreadExchangeStreamCaptureMode", byref(mode))
    assert mode.value == Mode.RELAXED, "what it was exchanged for"
    return found


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_calls_end_what_is_not_relaxed(name: str, library: EmulatedLibrary) -> None:
    relaxed = begin(library, Mode.RELAXED)
    code(library, name, *UNSAFE[name])
    assert status(library, relaxed) == ACTIVE
    for mode in (Mode.GLOBAL, Mode.THREAD_LOCAL):
        mine = begin(library, mode)
        assert code(library, name, *UNSAFE[name]) == hip_calls.CAPTURE_UNSUPPORTED
        assert ended(library, mine) == hip_calls.CAPTURE_INVALIDATED
    assert end(library, relaxed)


def test_the_null_stream_while_a_blocking_stream_captures(library: EmulatedLibrary) -> None:
    """Work on the null stream would wait for captured work, which has not run. torch's streams are
    not blocking."""
    device, done = malloc(library, 4), event(library)
    for enqueue in (
        lambda: fill(library, 0, device),
        lambda: code(library, "hipEventRecord", c_void_p(done), None),
        lambda: code(library, "hipStreamWaitEvent", None, c_void_p(done), 0),
        lambda: code(library, "hipStreamSynchronize", None),
    ):
        mine = begin(library, Mode.RELAXED, non_blocking=False)
        asked = ("hipStreamIsCapturing", None, byref(c_int()))
        assert code(library, *asked) == hip_calls.CAPTURE_IMPLICIT
        assert library.is_capturing(0)
        assert status(library, mine) == ACTIVE, "asking is no work"
        assert enqueue() == hip_calls.CAPTURE_IMPLICIT
        assert ended(library, mine) == hip_calls.CAPTURE_INVALIDATED
    free = begin(library)
    assert not library.is_capturing(0)
    assert fill(library, 0, device) == hip_calls.SUCCESS
    library.call("hipSetDevice", 1)
    elsewhere = begin(library, non_blocking=False)
    library.call("hipSetDevice", 0)
    assert fill(library, 0, device) == hip_calls.SUCCESS, "another device's"
    assert end(library, free)
    assert end(library, elsewhere)
    assert read(library, device, 1) == [0x01010101]


def fork(library: EmulatedLibrary, capturing: int) -> int:
    """Another stream: it waits for an event of `stream`, and is captured from then on."""
    forked, other = event(library), stream(library, True)
    library.call("hipEventRecord", c_void_p(forked), c_void_p(capturing))
    library.call("hipStreamWaitEvent", c_void_p(other), c_void_p(forked), 0)
    assert status(library, other) == ACTIVE
    return other


def test_a_fork_that_does_not_come_back(library: EmulatedLibrary) -> None:
    mine = begin(library)
    other = fork(library, mine)
    fill(library, other, malloc_relaxed(library))
    assert ended(library, mine) == hip_calls.CAPTURE_UNJOINED
    assert (status(library, mine), status(library, other)) == (NONE, NONE)
