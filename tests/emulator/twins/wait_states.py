"""Wait states that software has to insert (hazards.cpp)."""

from __future__ import annotations

from tests.emulator.twins.twin import COPY_TO_LDS, DESCRIPTOR, MFMA, ZEROS, Twins

DPP = "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"

TWINS = [
    Twins(
        "a matrix result read too early",
        "matrix-hazard",
        MFMA + "s_nop 11\n v_add_f32 v40, v16, v16",
        "s_nop 11",
        "s_nop 10",
        instruction="v_add_f32",
        other="v_mfma",
    ),
    Twins(
        "a matrix result stored too early",
        "matrix-hazard",
        MFMA + "s_nop 11\n global_store_dword v1, v31, s[6:7]",
        "s_nop 11",
        "s_nop 10",
        other="v_mfma",
    ),
    Twins(
        "a matrix result overwritten too early",
        "matrix-hazard",
        MFMA + "s_nop 11\n v_mov_b32 v31, 0",
        "s_nop 11",
        "s_nop 10",
        other="v_mfma",
    ),
    Twins(
        "a matrix result as the next one's A",
        "matrix-hazard",
        MFMA + "s_nop 11\n v_mfma_f32_32x32x16_bf16 v[32:47], v[16:19], v[6:9], 0",
        "s_nop 11",
        "s_nop 10",
        other="v_mfma",
    ),
    Twins(
        "the same accumulator follows at once, another overlapping one does not",
        "matrix-hazard",
        MFMA + "v_mfma_f32_32x32x16_bf16 v[16:31], v[2:5], v[6:9], v[16:31]",
        "v[16:31], v[2:5], v[6:9], v[16:31]",
        "v[18:33], v[2:5], v[6:9], v[18:33]",
        other="v_mfma",
    ),
    Twins(
        "a vector result as a matrix operand",
        "hazard",
        ZEROS + "v_mov_b32 v2, 1\n s_nop 1\n v_mfma_f32_32x32x16_bf16 v[16:31], v[2:5], v[6:9], 0",
        "s_nop 1",
        "s_nop 0",
        instruction="v_mfma",
        other="v_mov_b32",
    ),
    Twins(
        "an accumulator overwritten while it is read",
        "matrix-hazard",
        ZEROS
        + """v_mov_b32 v16, 0
        v_mov_b32 v17, 0
        v_mov_b32 v18, 0
        v_mov_b32 v19, 0
        s_nop 1
        v_mfma_f32_16x16x32_bf16 v[20:23], v[2:5], v[6:9], v[16:19]
        s_nop 2
        v_mov_b32 v16, 1""",
        "s_nop 2",
        "s_nop 1",
        other="v_mfma",
    ),
    Twins(
        "an SGPR written by a vector instruction, read by memory",
        "hazard",
        DESCRIPTOR
        + "v_mov_b32 v3, 0\n s_nop 0\n v_readfirstlane_b32 s12, v3\n s_nop 4\n"
        + "buffer_load_dword v2, v1, s[8:11], s12 offen",
        "s_nop 4",
        "s_nop 3",
        other="v_readfirstlane_b32",
    ),
    Twins(
        "a mask written by a compare, read by a select",
        "hazard",
        "v_cmp_gt_u32 vcc, 3, v0\n s_nop 1\n v_cndmask_b32 v3, v0, v1, vcc",
        "s_nop 1",
        "s_nop 0",
        other="v_cmp_gt_u32",
    ),
    Twins(
        "a lane number written by a vector instruction",
        "hazard",
        "v_readfirstlane_b32 s8, v0\n s_nop 3\n v_readlane_b32 s9, v1, s8",
        "s_nop 3",
        "s_nop 2",
    ),
    Twins(
        "EXEC written by a vector compare before DPP",
        "hazard",
        "v_cmpx_le_u32 exec, 0, v0\n s_nop 4\n v_mov_b32_dpp v3, v0 " + DPP,
        "s_nop 4",
        "s_nop 3",
    ),
    Twins(
        "a vector result read through DPP",
        "hazard",
        "v_mov_b32 v2, 1\n s_nop 1\n v_mov_b32_dpp v3, v2 " + DPP,
        "s_nop 1",
        "s_nop 0",
    ),
    Twins(
        "a transcendental result read at once",
        "hazard",
        "v_exp_f32 v2, v1\n s_nop 0\n v_add_f32 v3, v2, v2",
        "s_nop 0\n",
        other="v_exp_f32",
    ),
    Twins(
        "a lane swap right after its operand is written",
        "hazard",
        "v_mov_b32 v2, 1\n v_mov_b32 v3, 1\n s_nop 1\n v_permlane32_swap_b32 v2, v3",
        "s_nop 1\n",
    ),
    Twins(
        "VCC written by a vector instruction before v_div_fmas",
        "hazard",
        """v_mov_b32 v2, 1.0
        v_div_scale_f32 v3, vcc, v2, v2, v2
        s_nop 3
        v_div_fmas_f32 v4, v2, v2, v2""",
        "s_nop 3",
        "s_nop 2",
    ),
    Twins(
        "the data of a wide store overwritten at once",
        "hazard",
        """v_lshlrev_b32 v2, 2, v1
        global_load_dwordx4 v[4:7], v2, s[4:5]
        s_waitcnt vmcnt(0)
        global_store_dwordx4 v2, v[4:7], s[6:7]
        s_nop 1
        v_mov_b32 v4, 0""",
        "s_nop 1",
        "s_nop 0",
        other="global_store_dwordx4",
    ),
    Twins(
        "M0 written right before a copy to LDS",
        "hazard",
        COPY_TO_LDS + """s_waitcnt vmcnt(0)""",
        "s_nop 0\n",
        other="s_mov_b32 m0",
        options={"lds": 256},
    ),
    Twins(
        "MODE read right after it was set",
        "hazard",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE), 0\n s_nop 1\n s_getreg_b32 s8, hwreg(HW_REG_MODE)",
        "s_nop 1",
        "s_nop 0",
    ),
]
