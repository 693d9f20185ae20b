"""FLOPs and matrix-unit clocks of a matrix instruction, per wave on one SIMD; capacities of a CU.

A wave has 64 lanes. Source: passes of 4 clocks in LLVM's SISchedule.td, models of gfx940 and
gfx950. AMD's peak rates give the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the clock runs without the packages that read code objects
    from hk_backend.lab.toolchain.disassembly import Instruction

WAVE = 64

SWAP = re.compile(r"v_(swap|permlane16_swap|permlane32_swap)_b32")
FORMAT = re.compile(r"\b(?:cbsz|blgp):(\d)")
"""An operand's format in the text of an f8f6f4 instruction; without one it is FP8, format 0."""
LARGEST_8_BIT = 1
"""The last number of an 8-bit format: fp8 and bf8; fp6, bf6 and fp4 follow."""
MATRIX = re.compile(r"v_(?:mfma_(?:scale_)?|smfmac_)[a-z]+\d+_(\d+)x(\d+)x(\d+)_?(.*)")


@dataclass(frozen=True)
class ArchClocks:
    """Rates and sizes of one arch."""

    matrix_flops: int  # peak 16-bit FLOPs per clock and SIMD
    lds: int  # bytes per CU
    vgprs: int = 512  # per lane and wave slot of a SIMD, AGPRs included
    vgpr_granule: int = 8
    max_waves: int = 8  # per SIMD


ARCHES = {
    "gfx942": ArchClocks(matrix_flops=512, lds=64 * 1024),
    "gfx950": ArchClocks(matrix_flops=1024, lds=160 * 1024),
}


def is_matrix(instruction: Instruction) -> bool:
    return instruction.mnemonic.startswith(("v_mfma_", "v_smfmac_"))


def matrix_flops(instruction: Instruction) -> int:
    """FLOPs that a matrix instruction of one wave performs; 0 for any other instruction.

    With a sparse operand, of which half is there, it multiplies half of its depth.
    """
    found = MATRIX.match(instruction.mnemonic)
    terms = 1 if instruction.mnemonic.startswith("v_smfmac_") else 2
    return terms * int(found[1]) * int(found[2]) * int(found[3]) if found else 0


def has_8_bit_operand(instruction: Instruction) -> bool:
    """Whether an operand of an f8f6f4 instruction is FP8: it then takes twice the clocks."""
    formats = [int(number) for number in FORMAT.findall(instruction.operands)]
    return len(formats) < 2 or min(formats) <= LARGEST_8_BIT


def matrix_clocks(instruction: Instruction) -> int:
    """Clocks of a matrix instruction, by its tile but not its depth.

    Raises `ValueError` for an instruction without known clocks.
    """
    found = MATRIX.match(instruction.mnemonic)
    if found is None or found[1] != found[2]:
        raise ValueError(f"no clocks are known for {instruction.mnemonic}")
    edge, types = int(found[1]), found[4]
    clocks = {4: 8, 16: 16, 32: 32}[edge]
    if types == "f8f6f4":
        return 2 * clocks if has_8_bit_operand(instruction) else clocks
    return 2 * clocks if types.startswith(("f32", "xf32")) else clocks
