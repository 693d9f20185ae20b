"""Clocks that an instruction occupies its unit for, per wave of 64 lanes on one SIMD.

Sources: matrix instructions by their passes of 4 clocks (LLVM's SISchedule.td, models of gfx940 and
gfx950; AMD's peak rates give the same). Vector instructions take one pass, packed float32 too:
AMD's 256 float32 FLOPs per clock and CU (CDNA 3 white paper) are 128 fused multiply-adds of a
`v_pk_fma_f32` in 4 clocks on each SIMD. Swaps of two registers take two (SISchedule.td).
Transcendentals: see `ArchClocks`; LLVM's model charges them one pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hk_backend.kernels.toolchain.disassembly import Instruction

VECTOR_CLOCKS = 4  # 16 lanes per clock
LDS_BYTES_PER_CLOCK = 128  # per CU
WAVE = 64

SWAP = re.compile(r"v_(swap|permlane16_swap|permlane32_swap)_b32")
TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
MATRIX = re.compile(r"v_mfma_(?:scale_)?[a-z]+\d+_(\d+)x(\d+)x(\d+)_?(.*)")
LDS_WIDTH = re.compile(r"ds_(?:read|write)(2?)(?:st64)?_b(\d+)")
COPY_WIDTH = re.compile(
    r"(?:buffer|global)_load_(?:lds_)?(dwordx?(\d*)|u?byte|ushort|sbyte|sshort)"
)


@dataclass(frozen=True)
class ArchClocks:
    """Rates of one arch.

    Transcendentals are at a quarter of the rate on gfx942; gfx950 is reported to be twice as fast,
    which we have not measured.
    """

    matrix_flops: int  # peak 16-bit FLOPs per clock and SIMD
    transcendental: int
    lds: int  # bytes per CU
    vgprs: int = 512  # per lane and SIMD slot, AGPRs included
    vgpr_granule: int = 8
    max_waves: int = 8  # per SIMD


ARCHES = {
    "gfx942": ArchClocks(matrix_flops=512, transcendental=16, lds=64 * 1024),
    "gfx950": ArchClocks(matrix_flops=1024, transcendental=8, lds=160 * 1024),
}


def is_matrix(instruction: Instruction) -> bool:
    return instruction.mnemonic.startswith(("v_mfma_", "v_smfmac_"))


def is_vector(instruction: Instruction) -> bool:
    """On the vector ALU: every `v_*` that is not a matrix instruction."""
    return instruction.mnemonic.startswith("v_") and not is_matrix(instruction)


def matrix_flops(instruction: Instruction) -> int:
    """FLOPs of a wave, 0 for any other instruction."""
    found = MATRIX.match(instruction.mnemonic)
    return 2 * int(found[1]) * int(found[2]) * int(found[3]) if found else 0


def matrix_clocks(instruction: Instruction) -> int:
    """16-bit and plain 8-bit types: by the tile, whatever its depth. Raises `ValueError`."""
    found = MATRIX.match(instruction.mnemonic)
    if found is None or found[1] != found[2]:
        raise ValueError(f"no clocks are known for {instruction.mnemonic}")
    edge, types = int(found[1]), found[4]
    clocks = {4: 8, 16: 16, 32: 32}[edge]
    # FP8 operands; with FP4 or FP6 on both sides it would be half of it
    return 2 * clocks if types.startswith(("f8f6f4", "f32", "xf32")) else clocks


def vector_clocks(instruction: Instruction, arch: str) -> int:
    """0 for what does not run on the vector ALU."""
    if not is_vector(instruction):
        return 0
    if TRANSCENDENTAL.match(instruction.mnemonic):
        return ARCHES[arch].transcendental
    return VECTOR_CLOCKS * (2 if SWAP.match(instruction.mnemonic) else 1)


def lds_bytes(instruction: Instruction) -> int:
    """Bytes that a wave moves to or from the LDS, copies from global memory included."""
    if found := LDS_WIDTH.match(instruction.mnemonic):
        return WAVE * int(found[2]) // 8 * (2 if found[1] else 1)
    copies = instruction.operands.endswith(" lds") or "_load_lds_" in instruction.mnemonic
    if copies and (found := COPY_WIDTH.match(instruction.mnemonic)):
        return WAVE * (4 * int(found[2] or 1) if found[1].startswith("dword") else 4)
    return 0
