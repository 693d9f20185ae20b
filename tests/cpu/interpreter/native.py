"""Compiles small functions of the interpreter's instructions, and runs them on this processor."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path

FLAGS = [
    *("-O2", "-shared", "-fPIC"),
    *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512bf16", "-mavx512vnni"),
    *("-mamx-tile", "-mamx-bf16", "-mamx-int8"),
]
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA = 158, 0x1023, 18


class Code:
    """A compiled C++ source, by the addresses of its functions."""

    def __init__(self, source: str, folder: Path) -> None:
        """Compile `source`; `folder` may go afterwards."""
        file, library = folder / "code.cpp", folder / "code.so"
        file.write_text(source)
        subprocess.run(["c++", *FLAGS, file, "-o", library], check=True)
        self._library = ctypes.CDLL(str(library))

    def address(self, name: str) -> int:
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        assert address is not None
        return address


def call(function: int, *arguments: int) -> None:
    """Call the function at an address on this processor."""
    ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * len(arguments))(function)(*arguments)


@cache
def processor_has(*flags: str) -> bool:
    """Whether this processor has all of them, by Linux's names."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    own = next((line for line in lines if line.startswith("flags")), "").split()
    return set(flags) <= set(own)


@cache
def may_use_tiles() -> bool:
    """Whether this processor has AMX and the kernel lets this process use it."""
    libc = ctypes.CDLL(None)
    return processor_has("amx_tile", "amx_bf16", "amx_int8") and not libc.syscall(
        ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, TILE_DATA
    )
