"""The analysis of compiled code: its findings, costs of instructions beyond LLVM's model, and the
stand-in for a swap in llvm-mca's input."""

from __future__ import annotations

from pathlib import Path

import pytest

from hk_backend.lab.toolchain import analysis, clocks
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.disassembly import Instruction, Loop
from tests.kernels.sources import ARCH, Source, compile_kernel, straight

MFMA = "__builtin_amdgcn_mfma_f32_16x16x32_bf16"
MFMA_FLOPS = 2 * 16 * 16 * 32

ARGS = """
struct Args {{ const bf16x8* x; float* y; const f32x4* z; int n; }};
__device__ void run(const Args& a) {{
  const int lane = __builtin_amdgcn_workitem_id_x();
  f32x4 sum[{tiles}]{{}};
{loops}
  for (int t = 0; t < {tiles}; ++t) a.y[t * 64 + lane] = sum[t][0] + sum[t][3];
}}
"""
# a counter that the compiler cannot see through keeps it from unrolling
LOOP = """
  for (int i = a.n; i > 0; --i) {{
    asm volatile("" : "+s"(i));
    {body}
  }}
"""
PLAIN = (
    f"for (int t = 0; t < TILES; ++t) sum[t] = {MFMA}(a.x[lane], a.x[lane + 64], sum[t], 0, 0, 0);"
)
MASKED = PLAIN + " for (int t = 0; t < TILES; ++t) sum[t][0] = lane > i ? sum[t][0] : -1e30f;"


def kernel(*bodies: str, tiles: int = 4, step_flops: int = 4 * MFMA_FLOPS) -> Source:
    loops = "".join(LOOP.format(body=body.replace("TILES", str(tiles))) for body in bodies)
    return Source(
        body=ARGS.format(tiles=tiles, loops=loops),
        info=f'{{1, 2, 3, 0, {step_flops}, "measure", "test"}}',
    )


@pytest.mark.parametrize("bodies", [(PLAIN, MASKED), (MASKED, PLAIN), (PLAIN,)])
def test_the_steady_loop_is_the_unmasked_one(
    tmp_path: Path, tools: Toolchain, bodies: tuple[str, ...]
) -> None:
    _, code = compile_kernel(tmp_path, kernel(*bodies), tools)
    assert sum(any(map(clocks.is_matrix, loop.instructions)) for loop in code.loops) == len(bodies)
    found = analysis.steady_loop(code, 4 * MFMA_FLOPS)
    assert found is not None
    assert sum(map(clocks.is_matrix, found.loop.instructions)) == 4
    assert found.steps == 1
    assert not any("v_cndmask" in i.mnemonic for i in found.loop.instructions)


def test_steps_are_counted_by_their_useful_work(tmp_path: Path, tools: Toolchain) -> None:
    """The loop has six matrix instructions, and a step needs two and a half: two steps and a
    rest."""
    _, code = compile_kernel(tmp_path, kernel(PLAIN, tiles=6), tools)
    found = analysis.steady_loop(code, 5 * MFMA_FLOPS // 2)
    assert found is not None
    assert found.steps == 2


def test_no_steady_loop_without_matrix_instructions(tmp_path: Path, tools: Toolchain) -> None:
    body = "sum[0] += a.z[i];"
    entry, code = compile_kernel(tmp_path, kernel(body), tools)
    assert analysis.steady_loop(code, MFMA_FLOPS) is None
    assert entry["figures"]["mfma_share"] is None
    assert entry["figures"]["vmcnt0_in_loop"] == 0


@pytest.mark.parametrize(
    ("wait", "count"),
    [("vmcnt(1)", 0), ("lgkmcnt(0)", 0), ("vmcnt(0)", 1), ("vmcnt(0) expcnt(0) lgkmcnt(0)", 1)],
)
def test_only_waits_for_every_copy_are_vmcnt0(wait: str, count: int) -> None:
    code = straight("v_nop", f"s_waitcnt {wait}", "s_cbranch_scc1 65533", "s_endpgm")
    (loop,) = code.loops
    assert analysis.vmcnt0(loop) == count


DESCRIPTOR = """
struct Args {{ float* x; float* y; int n; }};
__device__ void run(const Args& a) {{
  const int lane = __builtin_amdgcn_workitem_id_x();
  float* base = {base};
  auto view = __builtin_amdgcn_make_buffer_rsrc(base, 0, 4096, 0x00020000);
  auto word = __builtin_amdgcn_raw_buffer_load_b32(view, lane * 4, 0, 0);
  a.y[lane] = __builtin_bit_cast(float, word);
}}
"""


@pytest.mark.parametrize(
    ("base", "loops"), [("a.x + (lane & 3) * 1024", 1), ("a.x + a.n * 1024", 0)]
)
def test_waterfall_loops(tmp_path: Path, tools: Toolchain, base: str, loops: int) -> None:
    source = Source(body=DESCRIPTOR.format(base=base))
    assert compile_kernel(tmp_path, source, tools)[0]["figures"]["waterfall_loops"] == loops


@pytest.mark.parametrize(
    ("vgpr_total", "lds", "block", "waves"),
    [
        (256, 160 * 1024, 512, 2),  # one workgroup of 8 waves
        (248, 0, 512, 2),
        (257, 0, 256, 1),  # granules of 8
        (257, 0, 512, 0),  # eight waves, and room for four
        (152, 68 * 1024, 512, 2),  # registers for three, but a workgroup comes as a whole
        (512, 160 * 1024, 256, 1),
        (64, 160 * 1024, 64, 1),
        (64, 0, 256, 8),
        (24, 0, 256, 8),  # never more than 8
        (128, 80 * 1024, 256, 2),  # two workgroups of 4
        (128, 80 * 1024 + 1, 256, 1),
        (0, 0, 64, 8),
    ],
)
def test_waves_per_simd(vgpr_total: int, lds: int, block: int, waves: int) -> None:
    assert analysis.waves_per_simd("gfx950", vgpr_total, lds, block) == waves


def test_what_not_every_iteration_does_is_told_apart() -> None:
    code = straight(
        "s_nop 0",  # 0: header
        "s_cbranch_vccz 2",  # 4: to 16
        "s_nop 1",  # 8: conditional
        "s_nop 2",  # 12
        "s_nop 3",  # 16
        "s_cbranch_scc1 65530",  # 20: to 0
        "s_endpgm",
    )
    (loop,) = code.loops
    assert [i.pc for i in loop.always] == [0, 4, 16, 20]
    assert len(loop.instructions) == 6


def test_loops_of_a_nest() -> None:
    """Two latches of one header are one loop; a loop within it is another."""
    code = straight(
        "s_nop 0",  # 0
        "s_nop 1",  # 4: header of both latches
        "s_cbranch_scc0 65534",  # 8: to 4
        "s_nop 2",  # 12: inner header
        "s_cbranch_vccz 65534",  # 16: to 12
        "s_cbranch_scc1 65531",  # 20: to 4
        "s_endpgm",
    )
    outer, inner = code.loops
    assert (outer.header, inner.header) == (4, 12)
    assert inner.blocks < outer.blocks
    assert [i.pc for i in inner.instructions] == [12, 16]
    assert [i.pc for i in outer.instructions] == [4, 8, 12, 16, 20]


@pytest.mark.parametrize(
    ("text", "flops", "matrix"),
    [
        ("v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]", 16384, 16),
        ("v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], 0", 32768, 32),
        ("v_mfma_f32_32x32x8_bf16 v[0:15], v[16:17], v[20:21], 0", 16384, 32),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0", 65536, 32),
        ("v_smfmac_f32_16x16x64_bf16 v[0:3], v[4:7], v[8:15], v16", 16384, 16),
        ("v_smfmac_f32_32x32x64_fp8_fp8 v[0:15], v[16:19], v[20:27], v28", 65536, 32),
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
    """llvm-mca's report, with the analysis' options."""
    return tools.run(
        "llvm-mca", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={ARCH}", *options, stdin=text, timeout=60
    )


@pytest.mark.parametrize(
    "text",
    [
        "v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], v[0:15]",
        "v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], v[0:15]",
        "v_mfma_f32_16x16x32_bf16 v[0:3], v[16:19], v[20:23], v[0:3]",
        "v_smfmac_f32_16x16x64_bf16 v[0:3], v[4:7], v[8:15], v16",
        "v_smfmac_f32_16x16x128_fp8_fp8 v[0:3], v[4:7], v[8:15], v16",
    ],
)
def test_costs_are_llvm_s(tools: Toolchain, text: str) -> None:
    """The costs equal the passes that LLVM's model of the arch gives the unit."""
    report = mca(tools, text, "-iterations=1", "-resource-pressure=0")
    line = next(line for line in report.splitlines() if line.endswith(text.split(" ", 1)[1]))
    passes = float(line.split()[2])  # the column "[3]: RThroughput"
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
    """The instructions that replace a swap in llvm-mca's input take the swap's time, beside any
    others."""
    report = mca(tools, "\n".join(lines), f"-iterations={analysis.ITERATIONS}")
    found = analysis.CYCLES.search(report)
    assert found is not None
    cycles = analysis.loop_clocks(loop_of(*lines), ARCH, tools) * analysis.ITERATIONS / 4
    assert abs(cycles - int(found[1])) <= 1  # the end of the last iteration


def loop_of(*lines: str) -> Loop:
    """A loop around straight code, in the form that the analysis reads."""
    instructions = straight(*lines).instructions
    return Loop(0, frozenset({0}), instructions, instructions)
