"""The compiled kernels: what they are, how to launch them, and their code objects.

    entry = catalogue("gfx950").kernel("attention_prefill_bf16_d128_paged")
    argument = pack_arguments(entry, query=q.data_ptr(), ...)
    entry.code_object(), entry.symbol, entry.grid(num_tokens=7, ...), entry.block, entry.dynamic_lds

`codeobjects/<arch>/` holds the code objects (`.co`) and `catalogue.json`, all of it written by
hk_backend/kernels/toolchain/build.py. Reading needs no compiler and no GPU.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hk_backend.kernels import grid
from hk_backend.kernels.arguments import ArgumentError, Arguments, Field
from hk_backend.kernels.toolchain.figures import Figures

CODE_OBJECTS = Path(__file__).parent / "codeobjects"
CATALOGUE_FILE = "catalogue.json"

# e_flags & 0xff of an AMDGPU ELF file (LLVM AMDGPU usage, "ELF Header", EF_AMDGPU_MACH)
ELF_MACHINES = {0x4C: "gfx942", 0x4F: "gfx950"}
ELF_AMDGPU = 224  # e_machine
ELF_HEADER = 64  # bytes


class CodeObjectError(RuntimeError):
    """A code object or a catalogue that is missing, damaged, changed or for another arch."""


@dataclass(frozen=True)
class Tile:
    """What one workgroup works on, see csrc/include/hk/kernel_info.hpp."""

    rows: int
    columns: int
    depth: int


@dataclass(frozen=True)
class KernelEntry:
    """A kernel of the catalogue. Sizes are in bytes, registers per lane, `block` in threads."""

    name: str
    symbol: str  # of the function in the code object
    arch: str
    path: Path  # of the code object
    lines: Path  # line tables beside it: there or not
    size: int
    sha256: str
    compiler: str
    arguments: Arguments
    grid_formula: str
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

    def code_object(self) -> bytes:
        """The file's bytes. Raises `CodeObjectError` unless they are what was catalogued."""
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

    def grid(self, **values: int) -> grid.Grid:
        """Workgroups in x, y, z, from the fields of the arguments that the formula names.

        Raises `grid.GridError` for a field that is missing.
        """
        tile = {
            "tile_rows": self.tile.rows,
            "tile_columns": self.tile.columns,
            "tile_depth": self.tile.depth,
        }
        return grid.evaluate(self.grid_formula, {**tile, **values})


@dataclass(frozen=True)
class Catalogue:
    """Every kernel of one arch."""

    arch: str
    compiler: str
    kernels: tuple[KernelEntry, ...]

    def kernel(self, name: str) -> KernelEntry:
        """Raises `KeyError` with what there is."""
        for entry in self.kernels:
            if entry.name == name:
                return entry
        there = ", ".join(entry.name for entry in self.kernels) or "none"
        raise KeyError(f"no kernel {name!r} for {self.arch}; there are: {there}")


def pack_arguments(entry: KernelEntry, **values: float | int | None) -> bytes:
    """The kernel's argument struct, from a value for each field; a pointer may be None.

    Raises `ArgumentError` that names kernel and field.
    """
    try:
        return entry.arguments.pack(values)
    except ArgumentError as error:
        raise ArgumentError(f"{entry.name}: {error}") from None


def arches(folder: Path = CODE_OBJECTS) -> list[str]:
    """The arches that kernels were built for."""
    return sorted(path.parent.name for path in folder.glob(f"*/{CATALOGUE_FILE}"))


@functools.cache
def catalogue(arch: str, folder: Path = CODE_OBJECTS) -> Catalogue:
    """The kernels for an arch, which may carry features: `gfx950:sramecc+:xnack-`.

    Raises `CodeObjectError` if there are none, or the file cannot be read.
    """
    arch = arch.partition(":")[0]
    path = folder / arch / CATALOGUE_FILE
    if not path.is_file():
        there = ", ".join(arches(folder)) or "none (`make kernels` builds them)"
        raise CodeObjectError(f"no kernels for {arch!r}; arches: {there}")
    try:
        data = json.loads(path.read_text())
        kernels = tuple(entry_of(kernel, data, path.parent) for kernel in data["kernels"])
        found = Catalogue(data["arch"], data["compiler"], kernels)
    except (ValueError, KeyError, TypeError) as error:
        raise CodeObjectError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    if found.arch != arch:
        raise CodeObjectError(f"{path} is for {found.arch}, not for {arch}")
    return found


def code_object_arch(data: bytes) -> str | None:
    """The arch in an ELF header; None where there is no AMDGPU header or the arch is unknown."""
    if len(data) < ELF_HEADER or data[:4] != b"\x7fELF":
        return None
    if int.from_bytes(data[18:20], "little") != ELF_AMDGPU:
        return None
    return ELF_MACHINES.get(data[48])


def entry_of(kernel: dict[str, Any], data: dict[str, Any], folder: Path) -> KernelEntry:
    """One kernel of a catalogue file whose whole content is `data`."""
    file = data["code_objects"][kernel["code_object"]]
    path = folder / f"{kernel['code_object']}.co"
    arguments = kernel["arguments"]
    return KernelEntry(
        name=kernel["name"],
        symbol=kernel["symbol"],
        arch=data["arch"],
        path=path,
        lines=path.with_suffix(".lines"),
        size=file["size"],
        sha256=file["sha256"],
        compiler=data["compiler"],
        arguments=Arguments(
            arguments["size"], tuple(Field(**field) for field in arguments["fields"])
        ),
        grid_formula=kernel["grid"],
        tile=Tile(**kernel["tile"]),
        step_flops=kernel["step_flops"],
        block=kernel["block"],
        **kernel["lds"],
        **kernel["resources"],
        figures=Figures(**kernel["figures"]),
    )
