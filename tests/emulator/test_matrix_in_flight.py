"""Matrix instructions on registers with a load in flight: each register that one reads or writes is
found, and none once it waits.

Every matrix opcode takes part, also those that the emulator only decodes: their operands are
checked before they stop the launch. test_decode.py compares the opcodes with LLVM's. Sizes of
operands follow from the instructions' names, and LLVM's assembler accepts no others.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator.assembly import PROLOGUE, Program, raw_buffer, run, together

BITS = {"f64": 64, "f32": 32, "xf32": 32, "i32": 32, "i8": 8, "fp8": 8, "bf8": 8}
"""Bits of an element, by its type's name; all others have 16."""
FORMATS = {"": (8, 8), " cbsz:2 blgp:4": (6, 4), " cbsz:4 blgp:3": (4, 6)}
"""Modifiers of the instructions that take FP8, FP6 and FP4, with the bits of an element of A and
of B."""
FIRST = {"a": 32, "b": 48, "c": 64, "d": 96, "scale of a": 128, "scale of b": 129, "index": 130}
"""The first register of each operand."""
ALWAYS_VGPR = ("scale of a", "scale of b", "index")
LOADS = (
    "global_load_dword {}, v1, s[4:5]",
    "buffer_load_dword {}, v1, s[8:11], 0 offen",
    "ds_read_b32 {}, v1",
)
ALLOCATED: dict[str, Any] = {"lds": 256, "vgprs": 320, "accum_offset": 144}
MOVES = {"v": "v_mov_b32 {}, 0\n", "a": "v_accvgpr_write_b32 {}, 0\n"}
BEGIN = f"""
  s_lshl_b32 s12, s2, 3
  s_load_dwordx2 s[12:13], s[4:5], s12     ; the register that is loaded, and whether to wait
  {raw_buffer(256)}
  ds_write_b32 v1, v0
"""
MAYBE_LOAD = """
  s_cmp_eq_u32 s12, {number}
  s_cbranch_scc0 skip{number}
  {load}
  skip{number}:
"""
END = """
  s_cmp_eq_u32 s13, 0
  s_cbranch_scc1 now
  s_waitcnt vmcnt(0) lgkmcnt(0)
  now:
  {matrix}
  s_waitcnt vmcnt(0) lgkmcnt(0)
"""
Found = tuple[str, str]  # a check, and the register that it names


@dataclass(frozen=True)
class Matrix:
    """A matrix instruction with its operands in one register file.

    Scales and indices are in VGPRs all the same.
    """

    arch: str
    name: str
    executed: bool
    file: str
    modifiers: str = ""

    @property
    def is_sparse(self) -> bool:
        return self.name.startswith("v_smfmac_")

    def sizes(self) -> dict[str, int]:
        """The number of registers of each operand."""
        shape = re.match(r"v_s?mf\D+?_(?:scale_)?(\D\d+)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_", self.name)
        assert shape, self.name
        m, n, k, blocks = (int(number or 1) for number in shape.groups()[1:])
        bits = BITS.get(self.name.rpartition("_")[2], 16)
        of_a, of_b = FORMATS[self.modifiers] if "f8f6f4" in self.name else (bits, bits)
        of_a = of_a // 2 if self.is_sparse else of_a  # two numbers of four are there
        a, b = (max(1, m * k * blocks * each // (64 * 32)) for each in (of_a, of_b))
        results = m * n * blocks * BITS[shape[1]] // (64 * 32)
        if self.is_sparse:
            return {"d": results, "a": a, "b": b, "index": 1}
        scales = {"scale of a": 1, "scale of b": 1} if "_scale_" in self.name else {}
        return {"d": results, "a": a, "b": b, "c": results, **scales}

    def registers(self, operand: str) -> list[str]:
        file = "v" if operand in ALWAYS_VGPR else self.file
        return [f"{file}{FIRST[operand] + i}" for i in range(self.sizes()[operand])]

    @functools.cached_property
    def every(self) -> list[str]:
        return [register for operand in self.sizes() for register in self.registers(operand)]

    def __str__(self) -> str:
        def text(names: list[str]) -> str:
            file, first, last = names[0][0], names[0][1:], names[-1][1:]
            return names[0] if first == last else f"{file}[{first}:{last}]"

        operands = (text(self.registers(operand)) for operand in self.sizes())
        return f"{self.name} {', '.join(operands)}{self.modifiers}"

    @functools.cached_property
    def body(self) -> str:
        """A program that writes every register, and loads one again."""
        parts = [f"; {self.arch}", BEGIN]
        parts += [MOVES[register[0]].format(register) for register in self.every]
        parts += ["s_waitcnt lgkmcnt(0)\n s_nop 15\n"]
        for number, register in enumerate(self.every):
            load = LOADS[number % len(LOADS)].format(register)
            parts.append(MAYBE_LOAD.format(number=number, load=load))
        return "".join([*parts, END.format(matrix=self)])

    def wanted(self, register: str) -> set[Found]:
        """The findings of a launch that loads this register and does not wait."""
        written = register in self.registers("d")
        read = self.is_sparse or not written
        found = {("unwaited-register", register)} if read else set()
        return found | {("overwritten-in-flight", register)} if written else found


def instructions(arch: str) -> Iterator[Matrix]:
    for _, _, name, executed in _emulator.opcodes(arch):
        if name.startswith(("v_mfma_", "v_smfmac_")):
            for modifiers in FORMATS if "f8f6f4" in name else ("",):
                for file in MOVES:
                    yield Matrix(arch, name, executed, file, modifiers)


ALL = {arch: list(instructions(arch)) for arch in ("gfx942", "gfx950")}
for each in ALL.values():
    together(Program(PROLOGUE + matrix.body, **ALLOCATED) for matrix in each)


def launch(matrix: Matrix, numbers: list[int], waits: bool) -> dict[int, set[Found]]:
    """The findings of a workgroup for each of these registers: checks with registers they name."""
    data = np.full((max(len(numbers), 32), 2), waits, np.uint32)  # 256 bytes, which lanes load
    data[: len(numbers), 0] = numbers
    report = run(
        matrix.body, data, arch=matrix.arch, grid=len(numbers), launch={"max_findings": 999},
        **ALLOCATED,
    )  # fmt: skip
    found: dict[int, set[Found]] = {number: set() for number in numbers}
    for finding in report.findings:
        assert finding.instruction.startswith(matrix.name)
        if finding.check != "unknown-instruction":
            register = finding.message.split(": ")[1].split(" ")[0]
            assert f" {register}," in finding.other_instruction
            found[numbers[finding.workgroup]].add((finding.check, register))
        else:
            assert not matrix.executed
    return found


KINDS = {(True, sparse, file) for sparse in (False, True) for file in MOVES}
"""Kinds of matrix instructions: whether one is executed, whether A is sparse, and where it lies."""


@pytest.mark.parametrize("arch", ALL)
def test_each_register_of_each_operand_is_waited_for(arch: str) -> None:
    """One register at a time is in flight. An instruction that is not executed ends its launch, so
    that it takes a launch for each."""
    missed = []
    assert {(m.executed, m.is_sparse, m.file) for m in ALL[arch]} >= KINDS
    for matrix in ALL[arch]:
        numbers = list(range(len(matrix.every)))
        launches = [numbers] if matrix.executed else [[number] for number in numbers]
        for some in launches:
            for number, found in launch(matrix, some, waits=False).items():
                register = matrix.every[number]
                if found != matrix.wanted(register):
                    missed.append(f"{matrix}, {register}: {found}")
            assert not any(launch(matrix, some, waits=True).values()), matrix
    assert not missed
