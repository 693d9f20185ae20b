"""Findings and counters of a launch, and the arguments of a kernel: for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hk_backend.lab.foreign.arguments import HIDDEN, declared
from hk_backend.lab.tables import plain_table

if TYPE_CHECKING:
    from hk_backend import _emulator

NO_LINE = "(no source line)"
KEPT = 20
"""Largest number of findings that a launch keeps (`Machine.launch`, max_findings)."""
CONFLICTS = 5
"""Largest number of LDS instructions with bank conflicts that are listed."""
FINDING = (
    *("check", "message", "source", "kernel", "instruction", "other_instruction"),
    *("pc", "other_pc", "workgroup", "wave", "lane", "address"),
)


@dataclass(frozen=True)
class Conflict:
    """An LDS instruction that takes more phases than it needs."""

    place: str
    taken: int
    needed: int


def plain_kernel(kernel: _emulator.Kernel) -> dict[str, Any]:
    """A kernel as plain data: sizes in bytes, registers of a lane."""
    return {
        "name": kernel.name,
        "arch": kernel.arch,
        "max_block": kernel.max_block,
        "static_lds": kernel.static_lds,
        "scratch": kernel.scratch,
        "vgprs": kernel.vgprs,
        "agprs": kernel.agprs,
        "sgprs": kernel.sgprs,
        "arguments": [
            {"number": number, "name": a.name, "kind": a.kind, "size": a.size, "offset": a.offset}
            for number, a in enumerate(declared(kernel))
        ],
        "hidden_arguments": [a.kind for a in kernel.arguments if a.kind.startswith(HIDDEN)],
    }


def plain_finding(finding: _emulator.Finding) -> dict[str, Any]:
    """A finding as plain data; an empty source: the file says no line."""
    return {name: getattr(finding, name) for name in FINDING}


def plain_counters(counters: _emulator.Counters, lines: Mapping[int, str]) -> dict[str, Any]:
    """Counters as plain data."""
    taken, needed = lds_phases(counters)
    return {
        "instructions": counters.instructions,
        "by_class": counters.by_class,
        "by_mnemonic": counters.by_mnemonic,
        "bytes": counters.bytes,
        "matrix_flops": counters.matrix_flops,
        "lds_phases": {"taken": taken, "needed": needed},
        "lds_conflicts": [vars(found) for found in conflicts(counters, lines)],
        "lds_unmodelled": counters.lds_unmodelled,
    }


def lds_phases(counters: _emulator.Counters) -> tuple[int, int]:
    """(taken, needed) phases of all LDS accesses that are modelled."""
    every = counters.lds_phases.values()
    return sum(taken for taken, _ in every), sum(needed for _, needed in every)


def conflicts(counters: _emulator.Counters, lines: Mapping[int, str]) -> list[Conflict]:
    """The LDS instructions with bank conflicts, the most expensive first."""
    found = [
        Conflict(f"{pc:#x} {lines.get(pc, '')}".strip(), taken, needed)
        for pc, (taken, needed) in counters.lds_phases.items()
        if taken > needed
    ]
    return sorted(found, key=lambda each: each.needed - each.taken)


def print_kernels(console: Console, kernels: Sequence[_emulator.Kernel]) -> None:
    """Print the kernels of a file, a line each."""
    table = plain_table("kernel", ">arguments", ">largest block", ">LDS", ">VGPRs", ">AGPRs")
    for kernel in kernels:
        numbers = (len(declared(kernel)), kernel.max_block, kernel.static_lds)
        table.add_row(kernel.name, *map(str, (*numbers, kernel.vgprs, kernel.agprs)))
    console.print(table, soft_wrap=True)


def print_arguments(console: Console, kernel: _emulator.Kernel) -> None:
    """Print the arguments that a launch of a kernel must give."""
    console.print(Text(f"{kernel.name} ({kernel.arch})", "bold"), soft_wrap=True)
    table = plain_table(">number", "name", "kind", ">size", ">offset")
    for number, argument in enumerate(declared(kernel)):
        size, offset = str(argument.size), str(argument.offset)
        table.add_row(str(number), argument.name or "-", argument.kind, size, offset)
    console.print(table, soft_wrap=True)


def print_findings(console: Console, findings: Sequence[_emulator.Finding]) -> None:
    """Print findings under the source lines at which they happened."""
    if not findings:
        console.print("no findings", style="green")
        return
    more = ", and perhaps more" if len(findings) >= KEPT else ""
    said = "1 finding" if len(findings) == 1 else f"{len(findings)} findings{more}"
    console.print(said, style="red", highlight=False)
    for line, at_line in _grouped(findings, lambda one: one.source or NO_LINE).items():
        console.print(Text(line, "bold"), soft_wrap=True)
        for alike in _grouped(at_line, lambda one: (one.check, one.pc, one.other_pc)).values():
            times = f" ({len(alike)} times)" if len(alike) > 1 else ""
            console.print(Text(f"  {alike[0].message}{times}"), soft_wrap=True)


def _grouped(findings: Iterable[_emulator.Finding], key: Any) -> dict[Any, list[Any]]:
    """Findings by their key, in the order in which each key first appears."""
    groups: dict[Any, list[Any]] = {}
    for finding in findings:
        groups.setdefault(key(finding), []).append(finding)
    return groups


def print_counters(
    console: Console, counters: _emulator.Counters, lines: Mapping[int, str]
) -> None:
    """Print what the launch executed."""
    console.print(_classes(counters))
    console.print()
    table = plain_table("what they moved and computed", ">")
    for kind, count in counters.bytes.items():
        if count:
            table.add_row(f"{kind.replace('_', ' ')} bytes", f"{count:,}")
    if counters.matrix_flops:
        table.add_row("matrix FLOPs", f"{counters.matrix_flops:,}")
    taken, needed = lds_phases(counters)
    if needed:
        table.add_row("LDS phases taken", f"{taken:,}")
        table.add_row("LDS phases needed", f"{needed:,}")
    for name, count in counters.lds_unmodelled.items():
        table.add_row(f"{name}: phases not known", f"{count:,}")
    console.print(table)
    for found in conflicts(counters, lines)[:CONFLICTS]:
        ratio = found.taken / found.needed
        said = f"bank conflicts at {found.place}: {ratio:.2f} times the phases needed"
        console.print(Text(said, "yellow"), soft_wrap=True)


def _classes(counters: _emulator.Counters) -> Table:
    table = plain_table("instructions of waves", ">", ">share")
    for name, count in sorted(counters.by_class.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{count:,}", f"{count / counters.instructions:.1%}")
    table.add_row("all", f"{counters.instructions:,}", "")
    return table
