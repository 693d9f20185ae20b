"""Builds and loads the interpreter of instructions that the emulated processor lacks.

AVX512-BF16, VNNI and AMX: entry.cpp says how the emulated processor comes to it.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
COMMON = ["-O2", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden"]
EMULATED = [
    *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"),
    "-Wno-maybe-uninitialized",  # GCC 12 warns of its own intrinsics
]
NATIVE = {"decode"}
"""Tests call these parts on this processor, which may have AVX2 alone."""
PARTS = ("decode", "entry", "tiles", "vectors")


class Instruction(ctypes.Structure):
    """The same as `Instruction` in instruction.hpp."""

    _fields_ = (
        ("operation", ctypes.c_uint8),
        ("length", ctypes.c_uint8),
        ("vector_bytes", ctypes.c_uint8),
        ("destination", ctypes.c_uint8),
        ("first", ctypes.c_uint8),
        ("second", ctypes.c_uint8),
        ("mask", ctypes.c_uint8),
        ("zeroing", ctypes.c_bool),
        ("broadcast", ctypes.c_bool),
        ("memory", ctypes.c_bool),
        ("base", ctypes.c_int8),
        ("index", ctypes.c_int8),
        ("shift", ctypes.c_uint8),
        ("displacement", ctypes.c_int32),
    )


class TileState(ctypes.Structure):
    """The same as `TileState` in machine.hpp."""

    _fields_ = (
        ("configured", ctypes.c_bool),
        ("rows", ctypes.c_uint8 * 8),
        ("row_bytes", ctypes.c_uint16 * 8),
        ("gap", ctypes.c_uint8 * 38),
        ("tile", ctypes.c_uint8 * (8 * 16 * 64)),
    )


class Interpreter:
    """One copy for the process: it has one set of tiles, for one call at a time."""

    def __init__(self, folder: Path) -> None:
        """Compile into `folder`, which may go afterwards.

        Raises:
            subprocess.CalledProcessError: the compiler refuses.
        """
        objects = []
        for part in PARTS:
            objects.append(folder / f"{part}.o")
            flags = COMMON if part in NATIVE else [*COMMON, *EMULATED]
            source = SOURCES / f"{part}.cpp"
            subprocess.run(["c++", *flags, "-c", source, "-o", objects[-1]], check=True)
        library = folder / "interpreter.so"
        subprocess.run(["c++", "-shared", *objects, "-o", library], check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.hk_name.restype = ctypes.c_char_p
        self._library.hk_decode.restype = ctypes.c_bool
        self._tiles = TileState.in_dll(self._library, "hk_tiles")
        self._count = ctypes.c_uint64.in_dll(self._library, "hk_interpreted")

    @property
    def handler(self) -> int:
        """The address of the handler of exception 6."""
        address = ctypes.cast(self._library.hk_invalid_opcode, ctypes.c_void_p).value
        assert address is not None
        return address

    @property
    def executed(self) -> int:
        """How many instructions it has executed."""
        return self._count.value

    @property
    def tiles_configured(self) -> bool:
        return bool(self._tiles.configured)

    def release_tiles(self) -> None:
        """Put the tiles into the state that a new thread has."""
        ctypes.memset(ctypes.addressof(self._tiles), 0, ctypes.sizeof(self._tiles))

    def decode(self, code: bytes) -> Instruction | None:
        """The instruction at the beginning of `code`, if the interpreter knows it."""
        found = Instruction()
        padded = code.ljust(16, b"\0")
        return found if self._library.hk_decode(padded, ctypes.byref(found)) else None

    def name(self, instruction: Instruction) -> str:
        """The mnemonic."""
        return str(self._library.hk_name(instruction.operation).decode())
