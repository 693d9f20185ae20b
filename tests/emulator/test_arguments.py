"""Arguments given as values are packed as the kernel's metadata declares them."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.assembly import PROLOGUE, Declared, Program, kernel_of, output, together

# Each lane copies a dword of the arguments; a launch has as many lanes as there are dwords.
COPY = f"""{PROLOGUE}
  global_load_dword v2, v1, s[0:1]
  s_waitcnt vmcnt(0)
  global_store_dword v1, v2, s[6:7]"""
FIRST = 16
"""Offset of the first argument behind the two pointers."""
SIZES = (1, 2, 4, 8)


def by_value(size: int, name: str = "") -> Declared:
    return Declared("by_value", FIRST, size, name)


OF_SIZE = {size: Program(COPY, more=(by_value(size),)) for size in (*SIZES, 12)}
POINTER = Program(COPY, more=(Declared("global_buffer", FIRST, 8, "keys"),))
IN_LDS = Program(COPY, more=(Declared("dynamic_shared_pointer", FIRST, 4),))
NAMED = Program(COPY, more=(by_value(4, "count"),))
# a byte, a hole of 3 bytes, a number, a hole of 4, a wide number, and what the runtime adds
MIXED = Program(
    COPY,
    more=(
        Declared("by_value", 16, 1),
        Declared("by_value", 20, 4),
        Declared("by_value", 32, 8),
        Declared("hidden_block_count_x", 40, 4),
    ),
)
together([*OF_SIZE.values(), POINTER, IN_LDS, NAMED, MIXED])


def seen(program: Program, *values: Any) -> bytes:
    """The bytes behind the two pointers, as the kernel sees them."""
    kernel, machine, out = kernel_of(program, "gfx950"), _emulator.Machine("gfx950"), output()
    end = max(argument.end for argument in program.more)
    lanes = math.ceil(end / 4)
    address = machine.map(out.ctypes.data, out.nbytes, "out")
    machine.launch(kernel, [1], [lanes], [None, address, *values], checks=False)
    return out.tobytes()[FIRST:end]


@pytest.mark.parametrize("size", SIZES)
def test_integers_from_the_least_to_the_largest_of_their_size(size: int) -> None:
    least, most = -(1 << 8 * size - 1), (1 << 8 * size) - 1
    for number in (0, 1, -1, least, most, most // 2):
        signed = number if number <= most // 2 else number - most - 1
        packed = signed.to_bytes(size, "little", signed=True)
        assert seen(OF_SIZE[size], number) == packed, number
    assert seen(OF_SIZE[size], True) == (1).to_bytes(size, "little")
    for number in (least - 1, most + 1, 1 << 200):
        said = f"number 2 is {number}; valid: an integer of {8 * size} bits"
        with pytest.raises(ValueError, match=said):
            seen(OF_SIZE[size], number)


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1e-45, 3.4e38, math.inf, -math.inf])
def test_floats_of_both_sizes(value: float) -> None:
    assert seen(OF_SIZE[4], value) == np.float32(value).tobytes()
    assert seen(OF_SIZE[8], value) == struct.pack("<d", value)


def test_nan_and_numbers_past_float32() -> None:
    (narrow,) = struct.unpack("<f", seen(OF_SIZE[4], math.nan))
    (wide,) = struct.unpack("<d", seen(OF_SIZE[8], math.nan))
    assert math.isnan(narrow)
    assert math.isnan(wide)
    assert seen(OF_SIZE[8], 1e300) == struct.pack("<d", 1e300)
    with pytest.raises(ValueError, match=r"is 1e\+300; valid: a number in the range of float32"):
        seen(OF_SIZE[4], 1e300)


def test_pointers() -> None:
    assert seen(POINTER, None) == bytes(8)
    assert seen(POINTER, 1 << 40) == struct.pack("<Q", 1 << 40)
    assert seen(POINTER, bytes(range(8))) == bytes(range(8))
    assert seen(IN_LDS, 256) == struct.pack("<I", 256)
    assert seen(IN_LDS, None) == bytes(4)


def test_bytes_as_they_are() -> None:
    for size, program in OF_SIZE.items():
        data = bytes(range(1, size + 1))
        assert seen(program, data) == data
        for wrong in (data[1:], data + b"\0"):
            with pytest.raises(ValueError, match=f"valid: {size} bytes"):
                seen(program, wrong)


def test_holes_are_zero_and_hidden_arguments_are_not_counted() -> None:
    seen_bytes = seen(MIXED, 255, 0.5, -2)
    assert seen_bytes == struct.pack("<B3xf8xqI", 255, 0.5, -2, 1)


@pytest.mark.parametrize(
    ("program", "values", "said"),
    [
        (NAMED, (0.5j,), r"number 2 \(count\) is 0.5j; valid: an integer, a float, or bytes"),
        (NAMED, (None,), r"number 2 \(count\) is None; valid: an integer, a float, or bytes"),
        (NAMED, ("4",), r"number 2 \(count\) is '4'; valid: an integer, a float, or bytes"),
        (POINTER, (0.5,), r"number 2 \(keys\) is 0.5; valid: an address, or None"),
        (POINTER, ("q",), r"number 2 \(keys\) is 'q'; valid: an address, or None"),
        (POINTER, (1 << 64,), r"number 2 \(keys\) is 18446744073709551616; valid: an integer of"),
        (OF_SIZE[2], (0.5,), "number 2 is 0.5; valid: an integer, or bytes of its format"),
        (OF_SIZE[12], (5,), "number 2 is 5; valid: 12 bytes"),
        (OF_SIZE[12], (0.5,), "number 2 is 0.5; valid: an integer, or bytes of its format"),
        (NAMED, (), "2 values; the kernel declares 3"),
        (NAMED, (1, 2), "4 values; the kernel declares 3"),
        (MIXED, (1, 2, 3, 4), "6 values; the kernel declares 5"),
    ],
)
def test_errors_name_the_argument_its_value_and_what_is_valid(
    program: Program, values: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=rf"arguments of 'k\d*': {said}"):
        seen(program, *values)


def test_a_trace_takes_values_too() -> None:
    out, machine = output(), _emulator.Machine("gfx950")
    address = machine.map(out.ctypes.data, out.nbytes, "out")
    kernel = kernel_of(NAMED, "gfx950")
    machine.trace(kernel, [1], [5], [None, address, 77], workgroups=[0])
    assert out[4] == 77
    with pytest.raises(ValueError, match="1 values; the kernel declares 3"):
        machine.trace(kernel, [1], [5], [None], workgroups=[0])


def test_what_is_no_sequence() -> None:
    machine = _emulator.Machine("gfx950")
    with pytest.raises(TypeError):
        machine.launch(kernel_of(NAMED, "gfx950"), [1], [5], 5)  # type: ignore[arg-type]
