"""What only the emulated library has: findings, counters, mapped tensors."""

from __future__ import annotations

import json
from ctypes import c_int, c_size_t, c_void_p

import pytest

from hk_backend.devices.hip.emulated import EmulatedLibrary
from hk_backend.devices.hip.library import HipError
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
from tests.devices.hip.small_kernels import BLOCK, STRAY


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
    line = 1 + next(i for i, text in enumerate(STRAY.text().splitlines()) if "a.out[i]" in text)
    assert finding["source"].endswith(f"stray.hip:{line}")
    assert report["kernels"]["stray"]["launches"] == 1
    library.forget_report()
    assert library.report() == {"synchronising_calls": 0, "findings": [], "kernels": {}}


def test_counters_add_up(library: EmulatedLibrary, small: Catalogue) -> None:
    out, handle = malloc(library, 4 * COUNT), function(library, small, "fill")
    counts = []
    for _ in range(2):
        fill(library, handle, out, 1)
        library.synchronise(0)
        counters = library.report()["kernels"]["fill"]["counters"]
        counts.append((counters["instructions"], counters["bytes"]["global_write"]))
    assert counts[0][1] == 4 * COUNT
    assert counts[1] == (2 * counts[0][0], 2 * counts[0][1])


def test_an_endless_loop_is_found(library: EmulatedLibrary, small: Catalogue) -> None:
    out, handle = malloc(library, 4), function(library, small, "count")
    argument = out.to_bytes(8, "little") + (10**12).to_bytes(8, "little")
    library.set_options(max_instructions=10_000)
    library.launch(handle, (1, 1, 1), BLOCK, 0, 0, argument)
    assert code(library, "hipDeviceSynchronize") == hip_calls.LAUNCH_FAILURE
    assert "endless" in library.report()["findings"][0]["check"]


def test_mapped_host_memory_may_overlap(library: EmulatedLibrary, small: Catalogue) -> None:
    host = (c_int * COUNT)()
    addresses = [
        pointer(library, "hkEmulatedMap", host, c_size_t(size), b"host") for size in (4, 4 * COUNT)
    ]
    handle = function(library, small, "fill")
    fill(library, handle, addresses[1], 3)
    library.synchronise(0)
    assert list(host) == [3] * COUNT
    fill(library, handle, addresses[0], 4)
    assert code(library, "hipStreamSynchronize", None) == hip_calls.LAUNCH_FAILURE
    assert host[1] == 3, "past the first region's end"
    assert "host" in json.dumps(library.report()["findings"][0])
    for address in addresses:
        library.unmap(address)
    assert code(library, "hkEmulatedUnmap", c_void_p(addresses[0])) == hip_calls.INVALID_VALUE


def test_launches_that_do_nothing(library: EmulatedLibrary, small: Catalogue) -> None:
    """Counted, and nothing runs; for measuring what a launch costs its caller."""
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
