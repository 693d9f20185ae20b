"""The emulated library's modules, functions and launches; findings, counters, mapped tensors."""

from __future__ import annotations

import zlib
from ctypes import byref, c_void_p
from dataclasses import replace
from pathlib import Path

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
    read,
)
from tests.devices.hip.small_kernels import BLOCK, STRAY, WIDE_LDS


def test_images_that_are_not_for_this_device(library: EmulatedLibrary, small: Catalogue) -> None:
    image = small.kernel("fill").code_object()
    found = c_void_p()

    def load(data: bytes) -> int:
        return code(library, "hipModuleLoadData", byref(found), data)

    assert load(b"no ELF file at all, but long enough to look" * 4) == hip_calls.INVALID_IMAGE
    x86 = image[:18] + (62).to_bytes(2, "little") + image[20:]
    assert load(x86) == hip_calls.INVALID_IMAGE
    assert load(image[: len(image) // 2] + bytes(len(image))) == hip_calls.INVALID_IMAGE
    library.reset("gfx942")
    assert load(image) == hip_calls.NO_BINARY_FOR_GPU


def test_an_image_that_does_not_load_says_why(
    library: EmulatedLibrary, small: Catalogue, tmp_path: Path
) -> None:
    """The emulator knows more than HIP's error numbers: here, line tables of another build."""
    entry = small.kernel("fill")
    lines = tmp_path / "fill.lines"
    lines.write_bytes(zlib.compress(entry.line_tables()[:200]))
    with pytest.raises(
        HipError, match=r"hipErrorInvalidImage \(200\): device kernel image is .*: ."
    ):
        library.load(replace(entry, lines=lines))
    with pytest.raises(HipError, match=r"hipErrorInvalidDevice \(101\): invalid device ordinal$"):
        library.call("hipSetDevice", 9)


@pytest.mark.parametrize("known", [True, False])
def test_dynamic_lds_above_64_kib(known: bool, library: EmulatedLibrary, small: Catalogue) -> None:
    """It needs its attribute. ROCm before 7 knows that for host functions only: it refuses it for a
    module's, and no launch needs it."""
    library.call("hkEmulatedModuleAttributes", int(known))
    out, wide = malloc(library, 4 * BLOCK), function(library, small, "wide")
    argument = out.to_bytes(8, "little") + (BLOCK).to_bytes(8, "little")

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
    argument = bytes(16)
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
    line = 1 + next(i for i, text in enumerate(STRAY.text().splitlines()) if "a.out[i]" in text)
    assert finding["source"].endswith(f"stray.hip:{line}")
    assert report["kernels"]["stray"]["launches"] == 1
    library.forget_report()
    assert library.report() == {"synchronising_calls": 0, "findings": [], "kernels": {}}


def test_an_endless_loop_is_found(library: EmulatedLibrary, small: Catalogue) -> None:
    out, handle = malloc(library, 4), function(library, small, "count")
    argument = out.to_bytes(8, "little") + (10**12).to_bytes(8, "little")
    library.set_options(max_instructions=10_000)
    library.launch(handle, (1, 1, 1), BLOCK, 0, 0, argument)
    assert code(library, "hipDeviceSynchronize") == hip_calls.LAUNCH_FAILURE
    assert "endless" in library.report()["findings"][0]["check"]


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
