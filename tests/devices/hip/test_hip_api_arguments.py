"""Both forms in which hipModuleLaunchKernel takes arguments, for kernels with hidden ones."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

import pytest

from hk_backend.devices.hip.emulated import EmulatedLibrary
from tests.devices.hip.hip_calls import INVALID_VALUE, SUCCESS, code, malloc, pointer, read
from tests.emulator.assembly import PROLOGUE, Declared, Program, assemble_all

BUFFER_POINTER, BUFFER_SIZE, END = (c_void_p(1), c_void_p(2), c_void_p(3))
"""HIP_LAUNCH_PARAM_BUFFER_POINTER, ..._SIZE and ..._END (hip_runtime_api.h)."""
GRID, BLOCK = 5, 7
DECLARED = 20
"""Bytes of the declared arguments: two pointers and a number."""
HIDDEN = (
    Declared("by_value", 16, 4),
    Declared("hidden_block_count_x", 24, 4),
    Declared("hidden_group_size_x", 28, 2),
)
# Writes the number, the count of workgroups, and the size of one.
COPY = f"""{PROLOGUE}
  s_load_dwordx4 s[8:11], s[0:1], 0x10
  s_waitcnt lgkmcnt(0)
  s_cmp_lg_u32 s2, 0
  s_cbranch_scc1 done
  s_and_b32 s11, s11, 0xffff
  v_mov_b32 v1, 0
  v_mov_b32 v2, s8
  v_mov_b32 v3, s10
  v_mov_b32 v4, s11
  global_store_dwordx3 v1, v[2:4], s[6:7]
done:"""


def function(library: EmulatedLibrary, program: Program) -> c_void_p:
    image = c_char_p(assemble_all((program,), "gfx950"))
    module = pointer(library, "hipModuleLoadData", image)
    return c_void_p(pointer(library, "hipModuleGetFunction", c_void_p(module), c_char_p(b"k")))


@pytest.fixture
def kernel(library: EmulatedLibrary) -> c_void_p:
    return function(library, Program(COPY, more=HIDDEN))


def launch(library: EmulatedLibrary, kernel: c_void_p, parameters: object, extra: object) -> int:
    sizes = (GRID, 1, 1, BLOCK, 1, 1)
    return code(library, "hipModuleLaunchKernel", kernel, *sizes, 0, None, parameters, extra)


def buffer(arguments: bytes) -> tuple[object, list[object]]:
    """The array `extra` for these bytes, and what it points to."""
    held = ctypes.create_string_buffer(arguments, len(arguments))
    size = c_size_t(len(arguments))
    parts = (BUFFER_POINTER, ctypes.cast(held, c_void_p), BUFFER_SIZE)
    last = (ctypes.cast(byref(size), c_void_p), END)
    return (c_void_p * 5)(*(each.value for each in (*parts, *last))), [held, size]


def test_an_array_of_pointers_has_the_declared_arguments(
    library: EmulatedLibrary, kernel: c_void_p
) -> None:
    out = malloc(library, 12)
    values = (c_void_p(0), c_void_p(out), c_int(42))
    parameters = (c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    assert launch(library, kernel, parameters, None) == SUCCESS
    assert read(library, out, 3) == [42, GRID, BLOCK]


@pytest.mark.parametrize("more", [0, 4, 10, 12, 300])
def test_a_buffer_ends_anywhere_behind_the_declared_arguments(
    more: int, library: EmulatedLibrary, kernel: c_void_p
) -> None:
    """Bytes that the caller gives in the place of hidden arguments do not count."""
    out = malloc(library, 12)
    given = struct.pack("<2Qi", 0, out, -9) + more * b"\xff"
    extra, _held = buffer(given)
    assert launch(library, kernel, None, extra) == SUCCESS
    assert read(library, out, 3) == [-9, GRID, BLOCK]


def test_too_few_arguments(library: EmulatedLibrary, kernel: c_void_p) -> None:
    extra, _held = buffer(bytes(DECLARED - 1))
    assert launch(library, kernel, None, extra) == INVALID_VALUE
    assert launch(library, kernel, None, None) == INVALID_VALUE


def test_a_kernel_that_has_only_hidden_ones(library: EmulatedLibrary) -> None:
    """HIP's callers give no array then, or an empty one."""
    program = Program("s_nop 0", first=(), more=HIDDEN[1:])
    kernel = function(library, program)
    assert launch(library, kernel, None, None) == SUCCESS
    assert launch(library, kernel, (c_void_p * 1)(), None) == SUCCESS
    library.synchronise(0)
    assert code(library, "hipGetLastError") == SUCCESS
