"""Analysis of a kernel's code: its steady loop according to llvm-mca, and forbidden instructions.

llvm-mca models one wave in order, with fixed latencies. It honours waits, but sees neither other
waves nor bank conflicts. It is good for comparing two schedules of one loop, not for absolute time.

Some instructions are replaced before llvm-mca 22 sees them:

- A swap of two registers, or a multiplication with a carry, has two micro-ops and two results. Some
  loops with one make llvm-mca hang (seven instructions suffice). Two instructions with the same
  results, reads, issue slots and unit replace it.
- A copy to LDS by address has the same effect, as llvm-mca counts two micro-ops. A copy by offset
  replaces it.
- An FP8 matrix instruction is taken for an FP4 one with half as many clocks. It is passed twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hk_backend.kernels.figures import Figures
from hk_backend.lab.toolchain import clocks
from hk_backend.lab.toolchain.clocks import ARCHES, is_matrix
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.disassembly import Disassembly, Instruction, Loop

ITERATIONS = 300
CLOCKS_PER_CYCLE = 4  # LLVM counts passes: a wave issues one vector instruction in each
SIMDS = 4  # per CU
CYCLES = re.compile(r"^Total Cycles:\s+(\d+)", re.MULTILINE)
MCA_TIMEOUT = 60  # seconds; a run takes a fraction of one
PAIR_OF_REGISTERS = re.compile(r"(v\d+), (v\d+)$")
WIDE_PRODUCT = re.compile(r"v\[(\d+):(\d+)\], \S+, (\S+), (\S+), (\S+)$")
COPY_BY_ADDRESS = re.compile(r"v\[(\d+):\d+\], off")
MASKING = ("v_cmp_", "v_cndmask_")
MEMORY = ("buffer_", "global_", "flat_", "scratch_", "ds_", "s_load_", "s_buffer_load_")


@dataclass(frozen=True)
class SteadyLoop:
    """The loop that a long run spends its time in, and how many steps one iteration makes.

    Only blocks that every iteration passes through count in its clocks. Conditional blocks, such as
    the rescale after a row maximum has risen, run rarely: their instructions are only counted.
    """

    loop: Loop
    steps: int


def steady_loop(code: Disassembly, step_flops: int) -> SteadyLoop | None:
    """Finds the unmasked loop of matrix instructions by its code, as no label marks it.

    Candidates are the innermost loops with matrix instructions. The result has the fewest
    comparisons and selections per matrix instruction, as a masked loop has one for each score. A
    tie goes to the longest loop.
    """
    matrix = [loop for loop in code.loops if any(map(is_matrix, loop.instructions))]
    inner = [loop for loop in matrix if not any(other.blocks < loop.blocks for other in matrix)]
    if not inner or not step_flops:
        return None
    loop = min(inner, key=lambda found: (_masking(found), -len(found.instructions)))
    flops = sum(map(clocks.matrix_flops, loop.always))
    return SteadyLoop(loop, flops // step_flops)  # the remainder is matrix work that is not useful


def _masking(loop: Loop) -> float:
    masks = sum(i.mnemonic.startswith(MASKING) for i in loop.instructions)
    return masks / sum(map(is_matrix, loop.instructions))


def waterfall_loops(code: Disassembly) -> int:
    """Number of loops around a memory access that handle one value of its descriptor at a time.

    LLVM makes such a loop from these steps: read the value of the first lane, narrow EXEC to the
    lanes with the same value, and make the access. It repeats them while a lane is left.
    """
    return sum(_is_waterfall(loop) for loop in code.loops)


def _is_waterfall(loop: Loop) -> bool:
    names = [instruction.mnemonic for instruction in loop.instructions]
    return (
        any(name.startswith("v_readfirstlane") for name in names)
        and any(name.startswith("v_cmp_eq") for name in names)
        and any("_saveexec" in name for name in names)
        and any(name.startswith(MEMORY) for name in names)
        and any(
            i.mnemonic == "s_cbranch_execnz" and i.target == loop.header for i in loop.instructions
        )
    )


def vmcnt0(loop: Loop) -> int:
    """Number of waits for every outstanding load."""
    return sum(
        i.mnemonic == "s_waitcnt" and "vmcnt(0)" in i.operands.replace("vscnt", "")
        for i in loop.instructions
    )


def loop_clocks(loop: Loop, arch: str, tools: Toolchain) -> float:
    """Clocks of one iteration by llvm-mca, without branches, as it needs straight-line code."""
    body = "\n".join(_for_mca(i) for i in loop.always if not i.is_branch) + "\n"
    report = tools.run(
        "llvm-mca",
        "-mtriple=amdgcn-amd-amdhsa",
        f"-mcpu={arch}",
        f"-iterations={ITERATIONS}",
        "-instruction-info=0",
        "-resource-pressure=0",
        stdin=body,
        timeout=MCA_TIMEOUT,
    )
    found = CYCLES.search(report)
    assert found, report
    return int(found[1]) * CLOCKS_PER_CYCLE / ITERATIONS


def _for_mca(instruction: Instruction) -> str:
    registers = PAIR_OF_REGISTERS.match(instruction.operands)
    if registers and clocks.SWAP.match(instruction.mnemonic):
        one, other = registers.groups()
        return f"v_and_b32 {one}, {one}, {other}\nv_mov_b32 {other}, {one}"
    if instruction.mnemonic.endswith("_f8f6f4") and clocks.has_8_bit_operand(instruction):
        return f"{instruction.text}\n{instruction.text}"
    product = WIDE_PRODUCT.match(instruction.operands)
    if product and instruction.mnemonic == "v_mad_u64_u32":
        low, high, a, b, added = product.groups()
        both = f"v[{low}:{high}]"
        return f"v_mul_lo_u32 v{low}, {a}, {b}\nv_lshl_add_u64 {both}, {added}, 0, {both}"
    copy = COPY_BY_ADDRESS.match(instruction.operands)
    if copy and instruction.mnemonic.startswith("global_load_lds_"):
        bytes_at_once = instruction.mnemonic.removeprefix("global_load_lds_")
        return f"buffer_load_{bytes_at_once} v{copy[1]}, s[0:3], 0 offen lds"
    return instruction.text


def waves_per_simd(arch: str, vgpr_total: int, lds: int, block: int) -> int:
    """Waves on the fullest SIMD of a CU, if as many workgroups run as registers and LDS admit.

    `vgpr_total` includes AGPRs; `lds` is in bytes. A CU holds a workgroup as a whole or not at all.
    """
    rates = ARCHES[arch]
    registers = -(-max(vgpr_total, 1) // rates.vgpr_granule) * rates.vgpr_granule
    waves = -(-block // clocks.WAVE)
    by_registers = min(rates.max_waves, rates.vgprs // registers) * SIMDS // waves
    by_lds = rates.lds // lds if lds else by_registers
    return -(-min(by_registers, by_lds) * waves // SIMDS)


def bank_conflict_factor(loop: Loop, phases: Mapping[int, Sequence[int]]) -> float | None:
    """LDS phases that a loop's accesses take, divided by their least number.

    `phases` has both numbers by pc. The emulator counts them for access widths with published
    phases. None if the loop has no such access.
    """
    counted = [phases[i.pc] for i in loop.instructions if i.pc in phases]
    needed = sum(pair[1] for pair in counted)
    return sum(pair[0] for pair in counted) / needed if needed else None


def analyse(
    code: Disassembly,
    arch: str,
    step_flops: int,
    waves: int,
    tools: Toolchain,
) -> Figures:
    """Computes every figure that a kernel's code alone provides. `waves`: result of
    `waves_per_simd`."""
    found = steady_loop(code, step_flops)
    waterfalls = waterfall_loops(code)
    if found is None or found.steps == 0:
        return Figures(waves_per_simd=waves, waterfall_loops=waterfalls, vmcnt0_in_loop=0)
    per_iteration = loop_clocks(found.loop, arch, tools)
    matrix = sum(clocks.matrix_clocks(i) for i in found.loop.always if is_matrix(i))
    useful = matrix * found.steps * step_flops / sum(map(clocks.matrix_flops, found.loop.always))
    return Figures(
        waves_per_simd=waves,
        waterfall_loops=waterfalls,
        vmcnt0_in_loop=vmcnt0(found.loop),
        conditional_instructions=len(found.loop.instructions) - len(found.loop.always),
        loop_clocks=per_iteration,
        mfma_share=matrix / per_iteration,
        useful_mfma_share=useful / per_iteration,
    )
