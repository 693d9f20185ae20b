"""Sizes of operands that a listing states: constants in the descriptors of its buffer loads.

The third dword of a buffer's descriptor is its size in bytes, which the hardware checks addresses
against. Many kernels leave it at its most; some set the operand's own size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from hk_backend.lab.timing.hardware.dispatch import Line

UNSTATED = 1 << 31
"""Sizes from here on are no operand's: kernels write -1 for no limit."""
_SCALARS = re.compile(r"s(\d+)|s\[(\d+):(\d+)\]")
_DESCRIPTOR = re.compile(r"\bs\[\d+:\d+\]")
_MOVES: Mapping[str, Callable[[int], int]] = {
    "s_mov_b32": lambda value: value,
    "s_movk_i32": lambda value: value,
    "s_brev_b32": lambda value: int(f"{value:032b}"[::-1], 2),
}


def operand(line: Line) -> str:
    """The registers of a load's descriptor; empty for one whose address is in vector registers."""
    found = _DESCRIPTOR.search(line.text)
    return found[0] if found and line.mnemonic.startswith("buffer_") else ""


def stated_sizes(lines: Sequence[Line]) -> dict[int, int]:
    """Bytes of the operands of buffer loads, by line, where constants reach the descriptor.

    Lines count in their order in the listing: kernels write a descriptor once, before they use it.
    """
    constants: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for number, line in enumerate(lines):
        if line.is_label:
            continue
        if "_load" in line.mnemonic and (registers := _scalars(operand(line))):
            size = constants.get(registers[2], UNSTATED)
            if size < UNSTATED:
                sizes[number] = size
        elif line.mnemonic.startswith("s_"):
            _execute(line, constants)
    return sizes


def _execute(line: Line, constants: dict[int, int]) -> None:
    """Note the constant that a scalar instruction writes, or that it writes no known one."""
    target, *sources = line.text.replace(",", " ").split()[1:] or [""]
    written = _scalars(target)
    value = _value(sources[0], constants) if sources and line.mnemonic in _MOVES else None
    for register in written:
        constants.pop(register, None)
    if value is not None and len(written) == 1:
        constants[written[0]] = _MOVES[line.mnemonic](value)


def _value(source: str, constants: Mapping[int, int]) -> int | None:
    if registers := _scalars(source):
        return constants.get(registers[0])
    try:
        return int(source, 0) & 0xFFFFFFFF
    except ValueError:
        return None


def _scalars(operand: str) -> list[int]:
    """The scalar registers of an operand; none for anything else."""
    found = _SCALARS.fullmatch(operand)
    if not found:
        return []
    alone, first, last = found.groups()
    return [int(alone)] if alone else list(range(int(first), int(last) + 1))
