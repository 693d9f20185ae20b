"""Reads the metadata of a code object's kernels (LLVM AMDGPU usage, "Code Object V5 Metadata")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from hk_backend.lab.toolchain.elf import Elf


@dataclass(frozen=True)
class Metadata:
    """Metadata of one kernel. Registers are per lane, sizes in bytes."""

    name: str
    arguments: tuple[str, ...]  # kind of each argument, hidden ones included
    argument_size: int
    block: int  # most threads of a workgroup
    static_lds: int
    vgpr_total: int  # AGPRs included
    agpr: int
    sgpr: int
    spills: int
    scratch: int


def read(elf: Elf) -> list[Metadata]:
    """Metadata of every kernel of a code object, in the order of the file."""
    notes = elf.file.get_section_by_name(".note").iter_notes()
    (data,) = (note["n_descdata"] for note in notes if note["n_name"] == "AMDGPU")
    return [_metadata(kernel) for kernel in msgpack.unpackb(data)["amdhsa.kernels"]]


def _metadata(kernel: Mapping[str, Any]) -> Metadata:
    return Metadata(
        name=kernel[".name"],
        arguments=tuple(argument[".value_kind"] for argument in kernel[".args"]),
        argument_size=kernel[".kernarg_segment_size"],
        block=kernel[".max_flat_workgroup_size"],
        static_lds=kernel[".group_segment_fixed_size"],
        vgpr_total=kernel[".vgpr_count"],
        agpr=kernel[".agpr_count"],
        sgpr=kernel[".sgpr_count"],
        spills=kernel[".vgpr_spill_count"] + kernel[".sgpr_spill_count"],
        scratch=kernel[".private_segment_fixed_size"],
    )
