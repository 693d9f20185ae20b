"""What an instruction costs, beside LLVM's model; and what llvm-mca is given for a swap."""

from __future__ import annotations

import pytest

from hk_backend.kernels.toolchain import analysis, clocks
from hk_backend.kernels.toolchain.compiler import Toolchain
from hk_backend.kernels.toolchain.disassembly import Instruction, Loop
from tests.kernels.sources import ARCH, straight


@pytest.mark.parametrize(
    ("text", "flops", "matrix"),
    [
        ("v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]", 16384, 16),
        ("v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], 0", 32768, 32),
        ("v_mfma_f32_32x32x8_bf16 v[0:15], v[16:17], v[20:21], 0", 16384, 32),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0", 65536, 32),
        ("v_pk_mul_f32 v[0:1], v[2:3], v[4:5]", 0, 0),
        ("s_add_u32 s0, s1, s2", 0, 0),
    ],
)
def test_costs(text: str, flops: int, matrix: int) -> None:
    instruction = Instruction(0, *text.split(" ", 1))
    assert clocks.matrix_flops(instruction) == flops
    assert clocks.is_matrix(instruction) == bool(matrix)
    if matrix:
        assert clocks.matrix_clocks(instruction) == matrix


def mca(tools: Toolchain, text: str, *options: str) -> str:
    """llvm-mca's report, as for the analysis."""
    return tools.run(
        "llvm-mca", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={ARCH}", *options, stdin=text, timeout=60
    )


@pytest.mark.parametrize(
    "text",
    [
        "v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], v[0:15]",
        "v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], v[0:15]",
        "v_mfma_f32_16x16x32_bf16 v[0:3], v[16:19], v[20:23], v[0:3]",
    ],
)
def test_costs_are_llvm_s(tools: Toolchain, text: str) -> None:
    """The passes that LLVM's model of the arch gives the unit."""
    report = mca(tools, text, "-iterations=1", "-resource-pressure=0")
    line = next(line for line in report.splitlines() if line.endswith(text.split(" ", 1)[1]))
    passes = float(line.split()[2])  # of "[3]: RThroughput"
    instruction = Instruction(0, *text.split(" ", 1))
    assert clocks.matrix_clocks(instruction) == 4 * passes


SWAP = "v_permlane32_swap_b32_e32 v1, v2"
NEIGHBOURS = [
    [SWAP],
    [SWAP, "v_exp_f32_e32 v1, v1"],
    [SWAP, "v_exp_f32_e32 v2, v2"],
    ["v_exp_f32_e32 v1, v3", SWAP, "v_mov_b32_e32 v3, v1"],
    ["v_exp_f32_e32 v2, v3", SWAP, "v_mov_b32_e32 v3, v2", "s_nop 2"],
    ["ds_read_b32 v1, v9", "s_waitcnt lgkmcnt(0)", SWAP, "v_mov_b32_e32 v2, v2"],
]


@pytest.mark.parametrize("lines", NEIGHBOURS, ids=str)
def test_a_swap_takes_its_time(tools: Toolchain, lines: list[str]) -> None:
    """What llvm-mca is given in place of a swap is timed like the swap, whatever is beside it."""
    report = mca(tools, "\n".join(lines), f"-iterations={analysis.ITERATIONS}")
    found = analysis.CYCLES.search(report)
    assert found is not None
    cycles = analysis.loop_clocks(loop_of(*lines), ARCH, tools) * analysis.ITERATIONS / 4
    assert abs(cycles - int(found[1])) <= 1  # of the last iteration


def loop_of(*lines: str) -> Loop:
    """A loop around straight code, as the analysis sees it."""
    instructions = straight(*lines).instructions
    return Loop(0, frozenset({0}), instructions, instructions)
