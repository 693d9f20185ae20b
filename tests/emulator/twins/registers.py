"""Registers: written before they are read, and allocated."""

from __future__ import annotations

from tests.emulator.twins.twin import COPY_TO_LDS, ZEROS, Twins

# two pairs of which one half is written: v12, v15
HALVES = ZEROS + "v_mov_b32 v12, 0\n v_mov_b32 v15, 0\n"

TWINS = [
    Twins(
        "a VGPR never written",
        "unwritten-register",
        "v_mov_b32 v5, 0\n v_add_u32 v3, v5, v0",
        "v_mov_b32 v5, 0\n",
        instruction="v_add_u32",
    ),
    Twins(
        "a VGPR written in some lanes only",
        "unwritten-register",
        """s_mov_b64 exec, -1
        v_mov_b32 v5, 0
        s_mov_b64 exec, -1
        v_add_u32 v3, v5, v0""",
        "s_mov_b64 exec, -1\n        v_mov",
        "s_mov_b64 exec, 0xff\n        v_mov",
    ),
    Twins(
        "a matrix instruction reads all lanes, whatever EXEC says",
        "unwritten-register",
        ZEROS
        + """s_nop 1
        s_mov_b64 exec, 0xff
        v_mov_b32 v5, 0
        s_nop 1
        v_mfma_f32_16x16x32_bf16 v[16:19], v[2:5], v[6:9], 0""",
        "v_mov_b32 v5, 0\nv_mov_b32 v6, 0",
        "v_mov_b32 v6, 0",
        instruction="v_mfma",
    ),
    Twins(
        "an AGPR never written",
        "unwritten-register",
        "v_accvgpr_write_b32 a3, 0\n v_accvgpr_read_b32 v3, a3",
        "v_accvgpr_write_b32 a3, 0\n",
        instruction="v_accvgpr_read_b32",
    ),
    Twins(
        "an SGPR never written",
        "unwritten-register",
        "s_mov_b32 s20, 0\n s_add_u32 s21, s20, 1",
        "s_mov_b32 s20, 0\n",
        instruction="s_add_u32",
    ),
    Twins(
        "VCC never written",
        "unwritten-register",
        "v_cmp_gt_u32 vcc, 3, v0\n s_nop 1\n v_cndmask_b32 v3, v0, v1, vcc",
        "v_cmp_gt_u32 vcc, 3, v0\n",
        instruction="v_cndmask_b32",
    ),
    Twins(
        "SCC never written",
        "unwritten-register",
        "s_cmp_eq_u32 s2, 0\n s_cselect_b32 s20, 1, 2",
        "s_cmp_eq_u32 s2, 0\n",
        instruction="s_cselect_b32",
    ),
    Twins(
        "a VGPR past the allocation",
        "register-bounds",
        "v_mov_b32 v31, 0",
        "v31",
        "v32",
        options={"vgprs": 64, "accum_offset": 32},
    ),
    Twins(
        "an AGPR past the allocation",
        "register-bounds",
        "v_accvgpr_write_b32 a31, 0",
        "a31",
        "a32",
        options={"vgprs": 64, "accum_offset": 32},
    ),
    Twins(
        "an SGPR past the allocation",
        "register-bounds",
        "s_mov_b32 s15, 0",
        "s15",
        "s40",
        options={"sgprs": 16},
    ),
    Twins(
        "packed f32: op_sel names the dwords that are read",
        "unwritten-register",
        HALVES + "v_pk_fma_f32 v[20:21], v[2:3], v[12:13], v[12:13] op_sel_hi:[1,0,0]",
        "op_sel_hi:[1,0,0]",
        "op_sel_hi:[1,1,0]",
        instruction="v_pk_fma_f32",
    ),
    Twins(
        "packed f32: the high dword alone",
        "unwritten-register",
        HALVES + "v_pk_mul_f32 v[20:21], v[2:3], v[14:15] op_sel:[0,1] op_sel_hi:[1,1]",
        "op_sel:[0,1]",
        "op_sel:[0,0]",
        instruction="v_pk_mul_f32",
    ),
    Twins(
        "packed move: the low dword of one source, the high dword of the other",
        "unwritten-register",
        HALVES + "v_pk_mov_b32 v[20:21], v[12:13], v[14:15] op_sel:[0,1]",
        "op_sel:[0,1]",
        "op_sel:[1,1]",
        instruction="v_pk_mov_b32",
    ),
    Twins(
        "packed f32 of a load in flight: the other dword",
        "unwaited-register",
        ZEROS
        + """global_load_dword v13, v1, s[4:5]
        v_mov_b32 v12, 0
        v_pk_add_f32 v[20:21], v[2:3], v[12:13] op_sel_hi:[1,0]""",
        "v[12:13] op_sel_hi:[1,0]",
        "v[12:13] op_sel_hi:[1,1]",
        other="global_load_dword",
    ),
    Twins(
        "the undefined high half of an addend reaches the high half of the result only",
        "unwritten-register",
        HALVES + "v_mad_u64_u32 v[20:21], s[8:9], v2, v3, v[12:13]\n v_add_u32 v22, v20, v20",
        "v22, v20, v20",
        "v22, v20, v21",
        instruction="v_add_u32",
    ),
    Twins(
        "the low half of an addend must be defined",
        "unwritten-register",
        HALVES + "v_mad_i64_i32 v[20:21], s[8:9], v2, v3, v[12:13]",
        "v[12:13]",
        "v[14:15]",
        instruction="v_mad_i64_i32",
    ),
    Twins(
        "an undefined high half is not the carry of what is added",
        "unwritten-register",
        HALVES
        + """v_mov_b32 v13, 0
        v_mad_u64_u32 v[20:21], vcc, v2, v3, v[12:13]
        s_nop 1
        v_cndmask_b32 v22, v20, v21, vcc""",
        "v_mov_b32 v13, 0\n",
        instruction="v_cndmask_b32",
    ),
    Twins(
        "a register written again is defined again",
        "unwritten-register",
        HALVES
        + """v_lshl_add_u64 v[20:21], v[12:13], 2, v[2:3]
        v_mov_b32 v21, 0 ; again
        v_add_u32 v22, v20, v21""",
        "v_mov_b32 v21, 0 ; again\n",
        instruction="v_add_u32",
    ),
    Twins(
        "a shifted number's undefined high half, into an address",
        "unwritten-register",
        HALVES
        + """v_mov_b32 v13, 0
        v_mov_b32 v2, s6
        v_mov_b32 v3, s7
        v_lshl_add_u64 v[20:21], v[12:13], 2, v[2:3]
        global_store_dword v[20:21], v0, off""",
        "v_mov_b32 v13, 0\n",
        instruction="global_store_dword",
    ),
    Twins(
        "M0 never written, by a copy to LDS",
        "unwritten-register",
        COPY_TO_LDS + """s_waitcnt vmcnt(0)""",
        "s_mov_b32 m0, 0\n",
        instruction="buffer_load_dword",
        options={"lds": 256},
    ),
    Twins(
        "EXEC is written by the hardware, FLAT_SCRATCH too; s40 is not",
        "unwritten-register",
        "s_mov_b64 s[20:21], exec\n s_mov_b32 s22, exec_lo",
        "s22, exec_lo",
        "s22, s40",
    ),
    Twins(
        "lanes past the last work-item have no number",
        "unwritten-register",
        "v_readlane_b32 s20, v0, 40",
        "40",
        "50",
        instruction="v_readlane_b32",
        options={"block": 45},
    ),
    Twins(
        "VCC of a compare by some lanes is written as a whole",
        "unwritten-register",
        "v_cmp_gt_u32 vcc, 3, v0\n s_and_b64 s[20:21], vcc, exec",
        "vcc, 3",
        "s[22:23], 3",
        instruction="s_and_b64",
    ),
]
