"""One kernel of the catalogue: its facts, how to launch it, and its code object."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from hk_backend.kernels.arguments import ArgumentError, Arguments
from hk_backend.kernels.figures import Figures

# e_flags & 0xff of an AMDGPU ELF file (LLVM AMDGPU usage, "ELF Header", EF_AMDGPU_MACH)
ELF_MACHINES = {0x4C: "gfx942", 0x4F: "gfx950"}
ELF_AMDGPU = 224  # e_machine
ELF_HEADER = 64  # bytes

Fact = str | int | bool
"""Value that tells kernels of an operator apart: the name of a dtype or format, a size, a bool."""


class CodeObjectError(RuntimeError):
    """A code object or an index is missing, damaged, changed or for another arch."""


@dataclass(frozen=True)
class Tile:
    """Rows, columns and depth that one workgroup works on; see csrc/include/hk/kernel_info.hpp."""

    rows: int
    columns: int
    depth: int


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of the catalogue. Sizes are in bytes, registers per lane, `block` in threads."""

    name: str
    symbol: str  # name of the function in the code object
    operator: str  # the family whose index lists it, e.g. gemm
    facts: Mapping[str, Fact]  # select it among the operator's kernels
    bars: Mapping[str, int]  # figures that a build of its source must reach
    arch: str
    path: Path  # path of the code object
    lines: Path  # compressed line tables beside it; the file may be missing
    size: int
    sha256: str
    compiler: str
    arguments: Arguments
    grid: str  # name of the function for the workgroups (csrc/hip/grid.cpp)
    tile: Tile
    step_flops: int  # useful matrix FLOPs of one wave in one step of the steady loop
    block: int
    static_lds: int
    dynamic_lds: int
    vgpr: int  # without AGPRs
    agpr: int
    sgpr: int
    spills: int  # registers, vector and scalar
    scratch: int
    figures: Figures
    code: str  # digest of its instructions and descriptor

    def __hash__(self) -> int:  # cheap, as the cache of choices hashes every candidate kernel
        return hash((self.name, self.sha256))

    def code_object(self) -> bytes:
        """Bytes of the code object. Raises `CodeObjectError` if the catalogue records others."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise CodeObjectError(
                f"{self.name}: cannot read the code object {self.path}: {error.strerror}"
            ) from None
        found = code_object_arch(data)
        if found is not None and found != self.arch:
            raise CodeObjectError(f"{self.path} is for {found}, not for {self.arch}")
        if len(data) != self.size:
            raise CodeObjectError(f"{self.path} has {len(data)} bytes instead of {self.size}")
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise CodeObjectError(f"{self.path} was changed: its sha256 is not the catalogue's")
        return data

    def line_tables(self) -> bytes:
        """An ELF file with the code object's line tables, by which a finding names its source line.

        Empty if the file is missing or unreadable, as nothing else needs it.
        """
        try:
            return zlib.decompress(self.lines.read_bytes())
        except (OSError, zlib.error):
            return b""

    def workgroups(self, argument: bytes) -> tuple[int, int, int]:
        """Workgroups in x, y and z of a launch with a packed argument, as the launcher counts them.

        Raises `ValueError` if the argument has another size.
        """
        from hk_backend import _hip  # an environment without native parts reads the catalogue, too

        return _hip.GridFunction(self.grid, astuple(self.tile)).of(argument)


def pack_arguments(entry: KernelEntry, **values: float | int | None) -> bytes:
    """Packs the kernel's argument struct, from a value for each field; a pointer may be None.

    Raises `ArgumentError`, which names the kernel and the field.
    """
    try:
        return entry.arguments.pack(values)
    except ArgumentError as error:
        raise ArgumentError(f"{entry.name}: {error}") from None


def code_object_arch(data: bytes) -> str | None:
    """The arch in an ELF header; None if there is no AMDGPU header or the arch is unknown."""
    if len(data) < ELF_HEADER or data[:4] != b"\x7fELF":
        return None
    if int.from_bytes(data[18:20], "little") != ELF_AMDGPU:
        return None
    return ELF_MACHINES.get(data[48])
