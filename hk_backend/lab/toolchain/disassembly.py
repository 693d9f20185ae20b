"""A kernel's instructions as llvm-objdump prints them, its basic blocks and its loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.elf import Elf

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
LINE = re.compile(r"^\t(\S+)\s*(.*?)\s*// ([0-9A-F]+):")
ENDS = ("s_endpgm", "s_setpc_b64")


@dataclass(frozen=True)
class Instruction:
    """One instruction. `pc`, and the `target` of a branch, are byte offsets in the .text
    section."""

    pc: int
    mnemonic: str
    operands: str
    target: int | None = None

    @property
    def text(self) -> str:
        """The instruction as assembler text."""
        return f"{self.mnemonic} {self.operands}".strip()

    @property
    def is_branch(self) -> bool:
        return self.mnemonic.startswith(("s_branch", "s_cbranch"))


@dataclass(frozen=True)
class Loop:
    """A natural loop. Blocks are named by their first pc; instructions are in the order of the
    code."""

    header: int
    blocks: frozenset[int]
    instructions: tuple[Instruction, ...]
    always: tuple[Instruction, ...]
    """Instructions of the blocks that every iteration passes through."""


class Disassembly:
    """The control flow of one kernel."""

    def __init__(self, instructions: tuple[Instruction, ...]) -> None:
        self.instructions = instructions

    @cached_property
    def blocks(self) -> dict[int, tuple[Instruction, ...]]:
        """Basic blocks by the pc of their first instruction, in the order of the code."""
        starts = {i.target for i in self.instructions if i.target is not None}
        blocks: dict[int, list[Instruction]] = {}
        fresh = True
        for instruction in self.instructions:
            if fresh or instruction.pc in starts:
                block = blocks.setdefault(instruction.pc, [])
            block.append(instruction)
            fresh = instruction.is_branch or instruction.mnemonic in ENDS
        return {start: tuple(block) for start, block in blocks.items()}

    @cached_property
    def successors(self) -> dict[int, tuple[int, ...]]:
        """Successors of each block, by the pc of their first instruction."""
        starts = list(self.blocks)
        found = {}
        for start, following in zip(starts, [*starts[1:], None], strict=True):
            last = self.blocks[start][-1]
            targets = [] if last.target is None else [last.target]
            falls = last.mnemonic not in (*ENDS, "s_branch")
            if falls and following is not None:
                targets.append(following)
            found[start] = tuple(targets)
        return found

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every natural loop. Loops with the same header count as one."""
        predecessors: dict[int, list[int]] = {start: [] for start in self.blocks}
        for start, targets in self.successors.items():
            for target in targets:
                predecessors[target].append(start)
        latches: dict[int, set[int]] = {}
        for latch, header in self._back_edges():
            latches.setdefault(header, set()).add(latch)
        return tuple(
            self._loop(
                header, _reached(latches[header], predecessors, without=header), latches[header]
            )
            for header in sorted(latches)
        )

    def _loop(self, header: int, body: set[int], latches: set[int]) -> Loop:
        body |= {header}
        inside = {
            block: [t for t in self.successors[block] if t in body - {header}] for block in body
        }
        always = {
            block
            for block in body
            if block == header or not latches & _reached({header}, inside, without=block)
        }
        return Loop(header, frozenset(body), self._code(body), self._code(always))

    def _code(self, blocks: set[int]) -> tuple[Instruction, ...]:
        return tuple(i for start in self.blocks if start in blocks for i in self.blocks[start])

    def _back_edges(self) -> Iterator[tuple[int, int]]:
        """Edges to a block that is still open in a depth-first walk from the entry."""
        entry = next(iter(self.blocks))
        path, done = {entry}, set()
        walk = [(entry, iter(self.successors[entry]))]
        while walk:
            block, targets = walk[-1]
            target = next(targets, None)
            if target is None:
                walk.pop()
                path.discard(block)
                done.add(block)
            elif target in path:
                yield block, target
            elif target not in done:
                path.add(target)
                walk.append((target, iter(self.successors[target])))


def _reached(starts: set[int], edges: Mapping[int, Sequence[int]], without: int) -> set[int]:
    """Every block on a path from `starts` that avoids `without`, `starts` included."""
    found: set[int] = set()
    open_blocks = [*starts]
    while open_blocks:
        block = open_blocks.pop()
        if block not in found and block != without:
            found.add(block)
            open_blocks += edges[block]
    return found


def disassemble(code_object: Path, arch: str, tools: Toolchain) -> dict[str, Disassembly]:
    """Disassembles every function of a code object, by its symbol."""
    elf = Elf(code_object.read_bytes())
    base, symbols = elf.sections[".text"].address, elf.symbols()
    functions: dict[str, list[Instruction]] = {}
    for line in tools.run("llvm-objdump", "-d", f"--mcpu={arch}", code_object).splitlines():
        if found := FUNCTION.match(line):
            start, size = symbols[found[1]]
            end = start - base + size  # padding follows
            function = functions.setdefault(found[1], [])
        elif found := LINE.match(line):
            instruction = parse(found[1], found[2], int(found[3], 16) - base)
            if instruction.pc < end:
                function.append(instruction)
    return {name: Disassembly(tuple(function)) for name, function in functions.items()}


def parse(mnemonic: str, operands: str, pc: int) -> Instruction:
    """Makes an instruction from its printed text; `pc` in bytes."""
    instruction = Instruction(pc, mnemonic, operands)
    if not instruction.is_branch:
        return instruction
    dwords = int(operands)  # counted from the next instruction; 16 bits, printed without a sign
    dwords -= (dwords & 0x8000) << 1
    return replace(instruction, target=pc + 4 + 4 * dwords)
