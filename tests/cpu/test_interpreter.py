"""What the emulated processor refuses: kernels that do this must not pass on it.

What it computes is compared with the product's results (test_emulated_isa.py), bit by bit in
tests/ops/test_linear_bf16.py.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cpu import bochs
from tests.cpu.interpreter.library import Interpreter

pytestmark = pytest.mark.x86_64

SOURCE = """
#include <immintrin.h>
extern "C" void configure_only(const void* config) { _tile_loadconfig(config); }
extern "C" void zero_without_configuration(const void*) { _tile_zero(3); }
extern "C" void multiply(const void* config) {
  _tile_loadconfig(config);
  _tile_dpbf16ps(0, 1, 2);
  _tile_release();
}
extern "C" void no_instruction(const void*) { asm("ud2"); }
extern "C" void divide_by_zero(const void*) { asm("xor %eax, %eax; div %eax"); }
"""
FULL = {0: (16, 64), 1: (16, 64), 2: (16, 64)}
"""Rows and bytes per row of tiles."""
REFUSED = {
    "palette": ("configure_only", FULL, 2),
    "too many rows": ("configure_only", {0: (17, 64)}, 1),
    "too many bytes": ("configure_only", {0: (16, 65)}, 1),
    "empty rows": ("configure_only", {0: (0, 64)}, 1),
    "empty columns": ("configure_only", {0: (16, 0)}, 1),
    "reserved": ("configure_only", {12: (0, 4)}, 1),
    "unequal rows": ("multiply", {**FULL, 0: (15, 64)}, 1),
    "unequal columns": ("multiply", {**FULL, 0: (16, 60)}, 1),
    "unequal groups": ("multiply", {**FULL, 2: (15, 64)}, 1),
    "no dwords": ("multiply", {0: (16, 62), 1: (16, 64), 2: (16, 62)}, 1),
    "not configured": ("multiply", {0: (16, 64), 1: (16, 64)}, 1),
    "no configuration": ("zero_without_configuration", {}, 1),
    "not released": ("configure_only", FULL, 1),
    "no instruction": ("no_instruction", {}, 1),
    "divide by zero": ("divide_by_zero", {}, 1),
}
MESSAGES = {
    "not released": "without tilerelease",
    "no instruction": "exception 6: refused at .*: 0f 0b",
    "divide by zero": "exception 0 ",
}


@pytest.fixture(scope="module")
def call() -> Iterator[Callable[..., object]]:
    """Calls a function of `SOURCE` on the emulated processor, with a configuration of tiles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "code.cpp").write_text(SOURCE)
        flags = ("-O2", "-shared", "-fPIC", "-mamx-tile", "-mamx-bf16")
        subprocess.run(["c++", *flags, "code.cpp", "-o", "code.so"], cwd=folder, check=True)
        code = ctypes.CDLL(str(folder / "code.so"))
        processor = bochs.Processor(bochs.load(folder), Interpreter(folder))

    def run(function: str, tiles: dict[int, tuple[int, int]], palette: int) -> None:
        config = bytearray(64)
        config[0] = palette
        for tile, (rows, row_bytes) in tiles.items():
            struct.pack_into("<H", config, 16 + 2 * tile, row_bytes)
            config[48 + tile] = rows
        address = ctypes.cast(getattr(code, function), ctypes.c_void_p).value
        assert address is not None
        processor.call(address, np.frombuffer(config, np.uint8).ctypes.data)

    yield run
    processor.close()


@pytest.mark.parametrize("case", REFUSED)
def test_what_faults(case: str, call: Callable[..., object]) -> None:
    with pytest.raises(RuntimeError, match=MESSAGES.get(case, "refused at")):
        call(*REFUSED[case])


def test_equal_tiles_do_not_fault(call: Callable[..., object]) -> None:
    """The control, and palette 0 releases tiles."""
    call("multiply", FULL, 1)
    call("configure_only", {}, 0)
