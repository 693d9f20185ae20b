"""VGPR indexing: s_set_gpr_idx_* and the vector instructions after them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.assembly import checks, run
from tests.emulator.lanes import M0, Wave

LANES = np.arange(64, dtype=np.uint32)
ENABLE = 1 << 27
FILL = "".join(f"v_add_u32 v{10 + i}, {100 * i}, v0\n" for i in range(8))  # v10..v17


def result(body: str) -> np.ndarray:
    """v2 of a program that begins with v10 + i = 100 i + lane, without findings."""
    out = np.zeros(64, np.uint32)
    got = run(f"{FILL}{body}\n global_store_dword v1, v2, s[6:7]", None, out)
    assert not got.findings, [f.message for f in got.findings]
    return out


@pytest.mark.parametrize("index", [0, 1, 7])
def test_sources_and_destinations_move_by_the_index(index: int) -> None:
    def indexed(operand: str, instruction: str) -> str:
        on = f"s_mov_b32 s8, {index}\n s_set_gpr_idx_on s8, gpr_idx({operand})"
        return f"{on}\n {instruction}\n s_set_gpr_idx_off\n"

    read = indexed("SRC0", "v_mov_b32 v2, v10")
    write = indexed("DST", "v_mov_b32 v10, v0")
    for body, expected in (
        (read, LANES + 100 * index),
        (indexed("SRC1", "v_sub_u32 v2, v17, v10"), np.full(64, 700 - 100 * index)),
        (indexed("SRC2", "v_add3_u32 v2, v0, v0, v10"), 3 * LANES + 100 * index),
        (write + read, LANES),
    ):
        np.testing.assert_array_equal(result(body), expected)


@pytest.mark.parametrize(("operand", "moved"), [("SRC1", 300), ("SRC2", 0)])
def test_a_literal_is_no_operand_that_moves(operand: str, moved: int) -> None:
    """The addend of v_fmamk is VSRC1: the literal stands between its two registers."""
    floats = "".join(f"v_cvt_f32_u32 v{i}, v{i}\n" for i in range(10, 14))
    body = f"""
      {floats}
      v_mov_b32 v3, 1.0
      s_set_gpr_idx_on 3, gpr_idx({operand})
      v_fmamk_f32 v2, v3, 0x40a00000, v10
      s_set_gpr_idx_off
      v_cvt_u32_f32 v2, v2"""
    np.testing.assert_array_equal(result(body), LANES + 5 + moved)


def test_m0_keeps_its_other_bits() -> None:
    """M0[7:0] the index, [15:12] the operands, MODE bit 27: the guide's pseudo-code."""
    old = 0xABCD5678
    wave = Wave(sgpr={M0: old})
    _, out = wave.scalar("s_set_gpr_idx_on", 0x1FF, simm=0b1010)
    assert int(out.sgpr[M0]) == old & ~0xF0FF | 0xFF | 0xA000
    assert out.mode == wave.mode | ENABLE
    _, out = wave.scalar("s_set_gpr_idx_idx", 0x321)
    assert int(out.sgpr[M0]) == old & ~0xFF | 0x21
    assert out.mode == wave.mode
    _, out = wave.scalar("s_set_gpr_idx_mode", simm=0b0110)
    assert int(out.sgpr[M0]) == old & ~0xF000 | 0x6000
    _, out = Wave(mode=0x3F0 | ENABLE, sgpr={M0: old}).scalar("s_set_gpr_idx_off")
    assert (int(out.sgpr[M0]), out.mode) == (old, 0x3F0)


REFUSED = "unsupported-instruction"
MOVE = "v_mov_b32 v2, v10"


@pytest.mark.parametrize(
    ("check", "first", "index", "operand", "second"),
    [
        ("register-bounds", "", 40, "SRC0", MOVE),
        ("unwritten-register", "", 20, "SRC0", MOVE),
        ("unwaited-register", "global_load_dword v12, v1, s[6:7]", 2, "SRC0", MOVE),
        (REFUSED, "", 2, "SRC0", "v_mov_b32_dpp v2, v10 row_mirror row_mask:0xf bank_mask:0xf"),
        (REFUSED, "", 1, "DST", "v_fmac_f32 v10, v11, v12"),
        (REFUSED, "", 1, "SRC0", "v_readfirstlane_b32 s9, v10"),
        (REFUSED, "", 1, "SRC0", "v_mov_b32_sdwa v2, v10 dst_sel:DWORD src0_sel:WORD_1"),
        (REFUSED, "s_nop 1", 1, "SRC0", "v_mfma_f32_4x4x1_16b_f32 v[20:23], v10, v11, 0"),
    ],
)
def test_what_is_refused(check: str, first: str, index: int, operand: str, second: str) -> None:
    body = f"{FILL}{first}\n s_set_gpr_idx_on {index}, gpr_idx({operand})\n {second}"
    report = run(body, None, np.zeros(64, np.uint32), vgprs=48, accum_offset=48)
    assert checks(report) == {check}, [f.message for f in report.findings]
