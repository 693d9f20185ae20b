"""Builds and loads the interpreter of instructions that the emulated processor lacks: AVX512-BF16,
VNNI and AMX. interpreter.cpp says how the emulated processor comes to it.

AVX512-BF16, VNNI and AMX: interpreter.cpp says how the emulated processor comes to it.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("interpreter.cpp")
FLAGS = [
    *("-O2", "-std=c++20", "-Wall", "-Wextra", "-Werror"),
    *("-shared", "-fPIC", "-fvisibility=hidden"),
    *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"),
    "-Wno-maybe-uninitialized",  # GCC 12 warns of its own intrinsics
]
TILE_STATE = 64 + 8 * 16 * 64
"""Bytes of `TileState` (interpreter.cpp), whose first says whether tiles are configured."""


class Interpreter:
    """One copy for the process: it has one set of tiles, for one call at a time."""

    def __init__(self, folder: Path) -> None:
        """Compile into `folder`, which may go afterwards.

        Raises:
            subprocess.CalledProcessError: the compiler refuses.
        """
        library = folder / "interpreter.so"
        subprocess.run(["c++", *FLAGS, SOURCE, "-o", library], check=True)
        self._library = ctypes.CDLL(str(library))
        self._tiles = (ctypes.c_uint8 * TILE_STATE).in_dll(self._library, "hk_tiles")
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
        return bool(self._tiles[0])

    def release_tiles(self) -> None:
        """Put the tiles into the state that a new thread has."""
        ctypes.memset(ctypes.addressof(self._tiles), 0, TILE_STATE)
