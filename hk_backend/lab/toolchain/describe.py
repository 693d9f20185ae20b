"""The record of a kernel in the index, read from the compiler's output."""

from __future__ import annotations

import struct
from dataclasses import asdict
from typing import Any

from hk_backend import _hip
from hk_backend.kernels.arguments import FORMATS
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing.family import family_of
from hk_backend.lab.toolchain import analysis, compare, disassembly
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.debug_info import SCALARS, DebugInfo, Entry
from hk_backend.lab.toolchain.elf import Elf
from hk_backend.lab.toolchain.metadata import Metadata

DIGITS = 4


class BuildError(RuntimeError):
    """A kernel must not ship as it was built."""


def describe(
    found: Metadata,
    code: disassembly.Disassembly,
    elf: Elf,
    debug_info: DebugInfo,
    arch: str,
    tools: Toolchain,
) -> tuple[str, dict[str, Any]]:
    """Reads a kernel's operator and its record in the index.

    Raises `BuildError`, `DebugInfoError`, and `ValueError` for an unknown grid.
    """
    if found.arguments != ("by_value",):
        listed = ", ".join(found.arguments)
        raise BuildError(f"{found.name} must take one struct and nothing hidden, not: {listed}")
    arguments = debug_info.arguments(found.name)
    if arguments.size != found.argument_size:
        raise BuildError(f"{found.name}: {arguments.size} bytes instead of {found.argument_size}")
    info = read_info(f"{found.name}_info", elf, debug_info)
    if not info["operator_name"].isidentifier():
        raise BuildError(
            f"{found.name}: operator_name {info['operator_name']!r} is not an identifier"
        )
    tile = {name: info[f"tile_{name}"] for name in ("rows", "columns", "depth")}
    _hip.GridFunction(info["grid"], tuple(tile.values()))  # raises if there is no such function
    lds = {"static_lds": found.static_lds, "dynamic_lds": info["dynamic_lds"]}
    waves = analysis.waves_per_simd(arch, found.vgpr_total, sum(lds.values()), found.block)
    figures = analysis.analyse(code, arch, info["step_flops"], waves, tools)
    return info["operator_name"], {
        "facts": info["facts"],
        "bars": info["bars"],
        "arguments": asdict(arguments),
        "grid": info["grid"],
        "tile": tile,
        "step_flops": info["step_flops"],
        "block": found.block,
        **lds,
        "vgpr": found.vgpr_total - found.agpr,
        "agpr": found.agpr,
        "sgpr": found.sgpr,
        "spills": found.spills,
        "scratch": found.scratch,
        "figures": {
            name: round(value, DIGITS) if isinstance(value, float) else value
            for name, value in asdict(figures).items()
            if name != "bank_conflict_factor"  # takes a run
        },
        "code": compare.digest(elf, found.name),
        "compiler": tools.version,
    }


def conflict_factor(entry: KernelEntry, tools: Toolchain) -> float | None:
    """Bank conflict factor from an emulated run; None for a family without a small launch.

    Raises `BuildError` with the findings of the emulator.
    """
    family = family_of(entry.operator)
    if family is None or family.small is None:
        return None
    report = family.launch_of(entry, family.small(entry)).run()
    if report.findings:
        raise BuildError("\n".join(f"{entry.name}: {f.message}" for f in report.findings))
    code = disassembly.disassemble(entry.path, entry.arch, tools)[entry.symbol]
    steady = analysis.steady_loop(code, entry.step_flops)
    if steady is None:
        return None
    factor = analysis.bank_conflict_factor(steady.loop, report.counters.lds_phases)
    return None if factor is None else round(factor, DIGITS)


def read_info(symbol: str, elf: Elf, debug_info: DebugInfo) -> dict[str, Any]:
    """Values of a kernel's constant `hk::KernelInfo`, by the names of its members."""
    return values(debug_info.struct_type(symbol), elf.symbol_bytes(symbol), debug_info)


def values(struct_type: Entry, data: bytes, debug_info: DebugInfo) -> dict[str, Any]:
    """Values of a struct's members, by name: numbers, text, and structs of these."""
    found: dict[str, Any] = {}
    for name, offset, type_ in debug_info.members(struct_type):
        if type_.tag == "structure_type":
            found[name] = values(type_, data[offset:], debug_info)
        elif type_.tag == "array_type":  # text
            found[name] = data[offset:].split(b"\0", 1)[0].decode()
        else:
            (found[name],) = struct.unpack_from("<" + FORMATS[SCALARS[type_.name]], data, offset)
    return found
