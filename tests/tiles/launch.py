"""Compiles the small kernels of this folder and runs them in the emulator.

    launch("load_rows_bf16_d64", image, out, lds=image.nbytes)

Every kernel takes `TileTestArgs` of kernel.hpp. Buffers are mapped with exactly their bytes, and a
finding of the emulator fails the test.
"""

from __future__ import annotations

import functools
import re
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from hk_backend import _emulator
from hk_backend.kernels.toolchain import build, compiler
from hk_backend.kernels.toolchain.compiler import ToolchainError
from hk_backend.kernels.toolchain.sources import SOURCES

FOLDER = Path(__file__).parent
BUFFERS, NUMBERS = 6, 6
GFX942, GFX950 = "gfx942", "gfx950"
arches = pytest.mark.parametrize("arch", [GFX942, GFX950])


def compile_source(source: Path, arch: str) -> bytes:
    """With the flags of the shipped kernels. Raises `ToolchainError` with the compiler's words."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernels.co"
        flags = [*build.FLAGS, f"-I{FOLDER}", f"-I{SOURCES}", f"--offload-arch={arch}"]
        compiler.find().run("clang++", *flags, source, "-o", out, cwd=build.ROOT)
        return out.read_bytes()


def compile_text(text: str, arch: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.hip"
        source.write_text(text)
        return compile_source(source, arch)


def errors_of(text: str, arch: str) -> list[str]:
    """The compiler's error messages."""
    try:
        compile_text(text, arch)
    except ToolchainError as error:
        return re.findall(r"error: (.*)", str(error))
    return []


@functools.cache
def source_of(kernel: str) -> Path:
    for path in sorted(FOLDER.glob("*.hip")):
        if re.search(rf"\b{kernel}\b", path.read_text()):
            return path
    raise LookupError(f"no kernel {kernel} in tests/tiles")


@functools.cache
def code_object(source: Path, arch: str) -> _emulator.CodeObject:
    return _emulator.CodeObject.load(compile_source(source, arch))


def launch(
    name: str,
    *buffers: NDArray[Any],
    numbers: Sequence[int] = (),
    waves: int = 1,
    grid: int = 1,
    lds: int = 0,
    arch: str = GFX950,
    seed: int = 0,
) -> _emulator.Counters:
    """Runs a kernel on the buffers, which it changes in place."""
    kernel = code_object(source_of(name), arch).kernel(name)
    machine = _emulator.Machine(arch)
    addresses = [
        machine.map(buffer.ctypes.data, buffer.nbytes, f"buffer {i}")
        for i, buffer in enumerate(buffers)
    ]
    addresses += [0] * (BUFFERS - len(addresses))
    padded = [*numbers, *[0] * (NUMBERS - len(numbers))]
    report = machine.launch(
        kernel,
        [grid],
        [64 * waves],
        struct.pack(f"<{BUFFERS}Q{NUMBERS}i", *addresses, *padded),
        dynamic_lds=lds,
        seed=seed,
        max_instructions=10_000_000,
    )
    assert not report.findings, report.findings[0].message
    return report.counters
