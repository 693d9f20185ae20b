"""The emulated library's modules, functions and launches."""

from __future__ import annotations

import ctypes
import zlib
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p
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
    number,
    read,
)
from tests.devices.hip.small_kernels import BLOCK, WIDE_LDS


def test_modules(library: EmulatedLibrary, small: Catalogue) -> None:
    module = library.load(small.kernel("fill"))
    assert library.function(module, "fill") == library.function(module, "fill")
    found = c_void_p()
    get = ("hipModuleGetFunction", byref(found), c_void_p(module))
    assert code(library, *get, b"nothing") == hip_calls.NOT_FOUND
    assert code(library, *get, b"") == hip_calls.INVALID_VALUE
    handle = library.function(module, "fill")
    library.call("hipModuleUnload", c_void_p(module))
    assert code(library, *get, b"fill") == hip_calls.INVALID_HANDLE
    with pytest.raises(HipError, match="InvalidHandle"):
        fill(library, handle, 0, 0)


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


def test_function_attributes(library: EmulatedLibrary, small: Catalogue) -> None:
    wide = c_void_p(function(library, small, "wide"))
    assert number(library, "hipFuncGetAttribute", 0, wide) == BLOCK
    assert number(library, "hipFuncGetAttribute", 1, wide) == 0  # static LDS
    assert number(library, "hipFuncGetAttribute", 4, wide) > 0  # registers
    assert number(library, "hipFuncGetAttribute", 8, wide) == 160 << 10
    found = c_int()
    assert code(library, "hipFuncGetAttribute", byref(found), 77, wide) == hip_calls.INVALID_VALUE
    assert code(library, "hipFuncSetAttribute", wide, 8, (160 << 10) + 1) == hip_calls.INVALID_VALUE
    assert code(library, "hipFuncSetAttribute", None, 8, 1) == hip_calls.INVALID_DEVICE_FUNCTION


def test_dynamic_lds_above_64_kib_needs_its_attribute(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    out, wide = malloc(library, 4 * BLOCK), function(library, small, "wide")
    argument = out.to_bytes(8, "little") + (BLOCK).to_bytes(8, "little")

    def launch(size: int) -> None:
        library.launch(wide, (1, 1, 1), BLOCK, size, 0, argument)

    with pytest.raises(HipError, match="hipErrorInvalidValue"):
        launch(WIDE_LDS)
    library.allow_dynamic_lds(wide, WIDE_LDS)
    with pytest.raises(HipError, match="hipErrorInvalidValue"):
        launch(WIDE_LDS + 4)
    launch(WIDE_LDS)
    assert read(library, out, BLOCK) == list(reversed(range(BLOCK)))


def test_a_runtime_that_knows_the_attribute_only_for_host_functions(
    library: EmulatedLibrary, small: Catalogue
) -> None:
    """ROCm before 7: hipFuncSetAttribute refuses a module's function, and no launch needs it."""
    library.call("hkEmulatedModuleAttributes", 0)
    out, wide = malloc(library, 4 * BLOCK), function(library, small, "wide")
    size = (c_void_p(wide), 8, WIDE_LDS)
    assert code(library, "hipFuncSetAttribute", *size) == hip_calls.INVALID_DEVICE_FUNCTION
    library.allow_dynamic_lds(wide, WIDE_LDS)
    assert code(library, "hipGetLastError") == hip_calls.SUCCESS, "or torch would report it"
    argument = out.to_bytes(8, "little") + (BLOCK).to_bytes(8, "little")
    library.launch(wide, (1, 1, 1), BLOCK, WIDE_LDS, 0, argument)
    assert read(library, out, BLOCK) == list(reversed(range(BLOCK)))


def test_both_ways_to_hand_over_arguments(library: EmulatedLibrary, small: Catalogue) -> None:
    out, handle = malloc(library, 4 * COUNT), function(library, small, "fill")

    class Args(ctypes.Structure):
        _fields_ = (("out", c_void_p), ("value", c_int), ("count", c_int))

    args = Args(out, 8, COUNT)
    parameters = (c_void_p * 1)(ctypes.addressof(args))
    shape = [c_uint(size) for size in (2, 1, 1, BLOCK, 1, 1, 0)]
    where = (c_void_p(handle), *shape, None)
    library.dll.hipModuleLaunchKernel.argtypes = None
    try:
        library.call("hipModuleLaunchKernel", *where, parameters, None)
        args.value = 9  # copied at the launch
        assert read(library, out, COUNT) == [8] * COUNT
        size = c_size_t(ctypes.sizeof(args))
        extra = (c_void_p * 5)(1, ctypes.addressof(args), 2, ctypes.addressof(size), 3)
        library.call("hipModuleLaunchKernel", *where, None, extra)
        assert read(library, out, COUNT) == [9] * COUNT
        both = (*where, parameters, extra)
        assert code(library, "hipModuleLaunchKernel", *both) == hip_calls.INVALID_VALUE
        neither = (*where, None, None)
        assert code(library, "hipModuleLaunchKernel", *neither) == hip_calls.INVALID_VALUE
        size.value = 12
        short = (*where, None, extra)
        assert code(library, "hipModuleLaunchKernel", *short) == hip_calls.INVALID_VALUE
    finally:
        type(library).__init__(library, library.path)  # its prototypes


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
