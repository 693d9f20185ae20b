"""Reads the metadata of a code object's kernels (LLVM AMDGPU usage, "Code Object V5 Metadata")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hk_backend.lab.toolchain.compiler import Toolchain

PAIR = re.compile(r"^( *)(- )?(?: *)\.(\w+): +(\S+)$")
ARGUMENT_INDENT = 6


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


def read(code_object: Path, tools: Toolchain) -> list[Metadata]:
    """Metadata of every kernel of a code object, in the order of the file."""
    kernels: list[dict[str, str]] = []
    kinds: list[list[str]] = []
    for line in tools.run("llvm-readelf", "--notes", code_object).splitlines():
        found = PAIR.match(line)
        if found is None:
            continue
        indent, dash, key, value = len(found[1]), found[2], found[3], found[4]
        if indent < ARGUMENT_INDENT and dash:
            kernels.append({})
            kinds.append([])
        if indent < ARGUMENT_INDENT:
            kernels[-1][key] = value
        elif key == "value_kind":
            kinds[-1].append(value)
    return [_metadata(kernel, kind) for kernel, kind in zip(kernels, kinds, strict=True)]


def _metadata(kernel: dict[str, str], kinds: list[str]) -> Metadata:
    number = {key: int(value) for key, value in kernel.items() if value.isdigit()}
    return Metadata(
        name=kernel["name"],
        arguments=tuple(kinds),
        argument_size=number["kernarg_segment_size"],
        block=number["max_flat_workgroup_size"],
        static_lds=number["group_segment_fixed_size"],
        vgpr_total=number["vgpr_count"],
        agpr=number["agpr_count"],
        sgpr=number["sgpr_count"],
        spills=number["vgpr_spill_count"] + number["sgpr_spill_count"],
        scratch=number["private_segment_fixed_size"],
    )
