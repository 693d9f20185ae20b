"""Global memory and scratch: bounds, and races between workgroups."""

from __future__ import annotations

from tests.emulator.twins.twin import DESCRIPTOR, Twins

TWINS = [
    Twins(
        "a load past the end of a buffer",
        "out-of-bounds",
        "global_load_dword v2, v1, s[4:5] offset:768",
        "offset:768",
        "offset:772",
    ),
    Twins(
        "a store before its begin",
        "out-of-bounds",
        "global_store_dword v1, v0, s[6:7]",
        "s[6:7]",
        "s[6:7] offset:-4",
    ),
    Twins(
        "num_records larger than what is mapped",
        "out-of-bounds",
        DESCRIPTOR + "buffer_load_dword v2, v1, s[8:11], 0 offen offset:772",
        "s_movk_i32 s10, 0x400",
        "s_movk_i32 s10, 0x404",
    ),
    Twins(
        "a scalar load past the end",
        "out-of-bounds",
        "s_load_dwordx4 s[8:11], s[4:5], 0x3f0",
        "0x3f0",
        "0x3f4",
    ),
    Twins(
        "scratch past its size",
        "out-of-bounds",
        "scratch_store_dword off, v0, off offset:12",
        "offset:12",
        "offset:16",
        options={"scratch": 16},
    ),
    Twins(
        "two workgroups write the same bytes",
        "global-race",
        "s_lshl_b32 s8, s2, 8\n v_add_u32 v2, s8, v1\n global_store_dword v2, v0, s[6:7]",
        "s2, 8",
        "s2, 7",
        options={"grid": 2},
    ),
    Twins(
        "a workgroup reads what another one writes",
        "global-race",
        """s_lshl_b32 s8, s2, 8
        v_add_u32 v2, s8, v1
        global_store_dword v2, v0, s[6:7]
        global_load_dword v3, v2, s[6:7] offset:0""",
        "offset:0",
        "offset:4",
        options={"grid": 2},
    ),
    Twins(
        "two workgroups write neighbouring bytes",
        "global-race",
        "v_add_u32 v2, s2, v1\n global_store_byte v2, v0, s[6:7]",
        "s2, v1",
        "0, v1",
        options={"grid": 2},
    ),
    Twins(
        "a workgroup reads the byte beside another one's",
        "global-race",
        """v_add_u32 v2, s2, v1
        global_store_byte v2, v0, s[6:7]
        global_load_ubyte v3, v2, s[6:7] offset:0""",
        "offset:0",
        "offset:1",
        options={"grid": 2},
    ),
    Twins(
        "lanes that are off access nothing",
        "out-of-bounds",
        "v_mov_b32 v2, 0\n v_mov_b32 v3, 0\n s_mov_b64 exec, 0\n"
        + "global_store_dword v[2:3], v0, off\n global_load_dword v4, v[2:3], off",
        "s_mov_b64 exec, 0",
        "s_mov_b64 exec, 2",
        instruction="global_store_dword",
    ),
    Twins(
        "a buffer load past the end of its descriptor gives 0 and is no fault",
        "out-of-bounds",
        DESCRIPTOR + "buffer_load_dwordx4 v[4:7], v1, s[8:11], 0 offen offset:4080",
        "s_movk_i32 s10, 0x400",
        "s_movk_i32 s10, 0x2000",
        instruction="buffer_load_dwordx4",
    ),
    Twins(
        "a buffer store past the end of its descriptor does nothing and is no fault",
        "out-of-bounds",
        DESCRIPTOR + "buffer_store_dword v0, v1, s[8:11], 0 offen offset:4080",
        "s_movk_i32 s10, 0x400",
        "s_movk_i32 s10, 0x2000",
        instruction="buffer_store_dword",
    ),
    Twins(
        "a null pointer",
        "out-of-bounds",
        "s_load_dword s20, s[4:5], 0x0",
        "s_load_dword s20, s[4:5], 0x0",
        "s_mov_b64 s[4:5], 0\n s_load_dword s20, s[4:5], 0x0",
        instruction="s_load_dword",
    ),
    Twins(
        "a misaligned atomic",
        "misaligned",
        "v_mov_b32 v2, 0\n global_atomic_add v1, v2, s[6:7]",
        "s[6:7]",
        "s[6:7] offset:2",
        instruction="global_atomic_add",
    ),
    Twins(
        "atomics of two workgroups do not race; a store and an atomic do",
        "global-race",
        "v_mov_b32 v2, 0\n global_atomic_add v2, v0, s[6:7]",
        "global_atomic_add",
        "global_store_dword",
        options={"grid": 2},
    ),
    Twins(
        "workgroups may read what another one reads",
        "global-race",
        "global_load_dword v2, v1, s[6:7]",
        "global_load_dword v2, v1",
        "global_store_dword v1, v0",
        options={"grid": 3},
    ),
    Twins(
        "a swizzled buffer",
        "unsupported-instruction",
        DESCRIPTOR + "s_or_b32 s9, s9, 0\n buffer_load_dword v2, v1, s[8:11], 0 offen",
        "s9, s9, 0\n",
        "s9, s9, 0x80000000\n",
        instruction="buffer_load_dword",
    ),
    Twins(
        "a buffer whose index the lane is added to",
        "unsupported-instruction",
        DESCRIPTOR + "s_or_b32 s11, s11, 0\n buffer_load_dword v2, v1, s[8:11], 0 offen",
        "s11, s11, 0\n",
        "s11, s11, 0x800000\n",
        instruction="buffer_load_dword",
    ),
    Twins(
        "a copy to LDS of less than a dword",
        "unsupported-instruction",
        DESCRIPTOR + "s_mov_b32 m0, 0\n s_nop 0\n buffer_load_dword v1, s[8:11], 0 offen lds\n"
        "s_waitcnt vmcnt(0)",
        "buffer_load_dword",
        "buffer_load_ubyte",
        instruction="buffer_load_ubyte",
        options={"lds": 256},
    ),
    Twins(
        "a buffer offset that wraps in 32 bits",
        "ambiguous",
        DESCRIPTOR + "v_sub_u32 v2, v1, 4\n v_max_i32 v2, 0, v2\n"
        "buffer_load_dword v3, v2, s[8:11], 0 offen offset:4",
        "v_max_i32 v2, 0, v2\n",
        instruction="buffer_load_dword",
    ),
    Twins(
        "a buffer offset past the stride",
        "ambiguous",
        DESCRIPTOR + "s_or_b32 s9, s9, 0x100000\n s_mov_b32 s10, 64\n v_mov_b32 v4, v0\n"
        "v_mov_b32 v5, 12\n buffer_load_dword v6, v[4:5], s[8:11], 0 idxen offen",
        "v5, 12",
        "v5, 13",
        instruction="buffer_load_dword",
    ),
    Twins(
        "a scalar offset past num_records",
        "ambiguous",
        DESCRIPTOR + "s_movk_i32 s12, 0x400\n buffer_load_dword v2, v1, s[8:11], s12 offen",
        "0x400\n buffer",
        "0x401\n buffer",
        instruction="buffer_load_dword",
    ),
    Twins(
        "a scalar load from a buffer with a stride",
        "ambiguous",
        DESCRIPTOR + "s_or_b32 s9, s9, 0\n s_buffer_load_dword s20, s[8:11], 0x0",
        "s9, s9, 0\n",
        "s9, s9, 0x100000\n",
        instruction="s_buffer_load_dword",
    ),
]
