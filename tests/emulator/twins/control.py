"""Barriers, loops, jumps."""

from __future__ import annotations

from tests.emulator.twins.twin import Twins

TWINS = [
    Twins(
        "a barrier at which some lanes do not arrive",
        "divergent-barrier",
        """v_cmp_gt_u32 vcc, 7, v0
        s_and_saveexec_b64 s[10:11], vcc
        s_mov_b64 exec, s[10:11]
        s_barrier""",
        "s_mov_b64 exec, s[10:11]\n",
        instruction="s_barrier",
        options={"block": 128},
    ),
    Twins(
        "lanes without a work-item are not missed at a barrier",
        "divergent-barrier",
        "s_barrier",
        "s_barrier",
        "s_mov_b64 exec, 1\n s_barrier",
        options={"block": 164},
    ),
    Twins(
        "a barrier that one wave ends without",
        "divergent-barrier",
        """v_readfirstlane_b32 s8, v0
        s_cmp_eq_u32 s8, 64
        s_cbranch_scc1 others
        s_barrier
        s_endpgm
        others:
        s_barrier""",
        "others:\n        s_barrier",
        "others:",
        instruction="s_barrier",
        options={"block": 128},
    ),
    Twins(
        "a loop without an end",
        "endless-loop",
        "s_mov_b32 s8, 9\n again:\n s_sub_u32 s8, s8, 3\n"
        " s_cmp_eq_u32 s8, 0\n s_cbranch_scc0 again",
        "s8, 9",
        "s8, 8",
        options={"launch": {"max_instructions": 10_000}},
    ),
    Twins("a trap", "trap", "s_nop 0", "s_nop 0", "s_trap 2"),
    Twins(
        "a jump into the middle of an instruction",
        "bad-jump",
        "s_getpc_b64 s[8:9]\n s_add_u32 s8, s8, 20\n s_addc_u32 s9, s9, 0\n s_setpc_b64 s[8:9]\n"
        + "s_mov_b32 s10, 0x12345678\n s_nop 0",
        "s8, 20",
        "s8, 16",
        instruction="s_setpc_b64",
    ),
    Twins(
        "a branch out of the program",
        "bad-jump",
        "s_cmp_eq_u32 s2, s2\n s_cbranch_scc0 0x7000",
        "scc0",
        "scc1",
        instruction="s_cbranch_scc1",
    ),
    Twins(
        "words that are no instruction",
        "unknown-instruction",
        "s_branch on\n .long 0x7fffffff\n on:",
        "s_branch on\n",
        instruction="unknown 0x7fffffff",
    ),
    Twins(
        "an instruction that is not emulated",
        "unknown-instruction",
        "v_lshl_or_b32 v2, v0, v0, v0",
        "v_lshl_or_b32",
        "v_lerp_u8",
        instruction="v_lerp_u8",
    ),
    Twins(
        "a form of an instruction that is not emulated",
        "unsupported-instruction",
        "s_mov_b64 exec, -1\n v_permlane32_swap_b32 v0, v1",
        "s_mov_b64 exec, -1",
        "s_mov_b64 exec, 1",
        instruction="v_permlane32_swap_b32",
    ),
    *(
        Twins(
            f"a lane exchange of another kind: {pattern}",
            "unsupported-instruction",
            "ds_swizzle_b32 v2, v0 offset:swizzle(REVERSE,8)",
            "REVERSE,8",
            pattern,
            instruction="ds_swizzle_b32",
        )
        for pattern in ("ROTATE,0,1", "FFT,5")
    ),
    Twins(
        "GDS",
        "unsupported-instruction",
        "s_mov_b32 m0, 0\n .long 0xd81a0000, 1",  # LLVM has no text for it on these archs
        "0xd81a0000",
        "0xd81b0000",
        instruction="ds_write_b32",
        options={"lds": 256},
    ),
    Twins(
        "a memory instruction that is not emulated",
        "unsupported-instruction",
        "s_mov_b32 m0, 0\n v_mov_b32 v2, 0\n ds_write_b32 v2, v0 offset:16",
        "ds_write_b32 v2, v0 offset:16",
        "ds_write_addtid_b32 v0 offset:16",
        instruction="ds_write_addtid_b32",
        options={"lds": 256},
    ),
]
