"""Results of memory instructions: they land when a wait forces them, and no sooner."""

from __future__ import annotations

from tests.emulator.twins.twin import COPY_TO_LDS, Twins

TWINS = [
    Twins(
        "a global load without its wait",
        "unwaited-register",
        "global_load_dword v2, v1, s[4:5]\n s_waitcnt vmcnt(0)\n v_add_u32 v3, v2, v2",
        "s_waitcnt vmcnt(0)\n",
        instruction="v_add_u32",
        other="global_load_dword",
    ),
    Twins(
        "a wait that is one too weak",
        "unwaited-register",
        """global_load_dword v2, v1, s[4:5]
        global_load_dword v3, v1, s[4:5] offset:4
        s_waitcnt vmcnt(1)
        v_add_u32 v4, v2, v2""",
        "vmcnt(1)",
        "vmcnt(2)",
        other="global_load_dword v2",
    ),
    Twins(
        "stores count in vmcnt, too",
        "unwaited-register",
        """global_load_dword v2, v1, s[4:5]
        global_store_dword v1, v0, s[6:7]
        s_waitcnt vmcnt(1)
        v_add_u32 v4, v2, v2""",
        "vmcnt(1)",
        "vmcnt(2)",
        other="global_load_dword v2",
    ),
    Twins(
        "an LDS read without its wait",
        "unwaited-register",
        """ds_write_b32 v1, v0
        ds_read_b32 v2, v1
        s_waitcnt lgkmcnt(0)
        v_add_u32 v3, v2, v2""",
        "lgkmcnt(0)\n        v_add",
        "lgkmcnt(1)\n        v_add",
        instruction="v_add_u32",
        other="ds_read_b32",
        options={"lds": 256},
    ),
    Twins(
        "a scalar load without its wait",
        "unwaited-register",
        "s_load_dword s8, s[4:5], 0x0\n s_waitcnt lgkmcnt(0)\n s_add_u32 s9, s8, 1",
        "s_waitcnt lgkmcnt(0)\n",
        instruction="s_add_u32",
        other="s_load_dword",
    ),
    Twins(
        "scalar loads return in any order",
        "unwaited-register",
        """s_load_dword s8, s[4:5], 0x0
        s_load_dword s9, s[4:5], 0x4
        s_waitcnt lgkmcnt(0)
        s_add_u32 s10, s8, 1""",
        "lgkmcnt(0)\n        s_add",
        "lgkmcnt(1)\n        s_add",
        other="s_load_dword s8",
    ),
    Twins(
        "a register overwritten while its load is in flight",
        "overwritten-in-flight",
        "global_load_dword v2, v1, s[4:5]\n s_waitcnt vmcnt(0)\n v_mov_b32 v2, 0",
        "s_waitcnt vmcnt(0)\n",
        instruction="v_mov_b32",
        other="global_load_dword",
    ),
    Twins(
        "an atomic's result without its wait",
        "unwaited-register",
        """v_mov_b32 v2, 0
        global_atomic_add v3, v1, v2, s[6:7] sc0
        s_waitcnt vmcnt(0)
        v_add_u32 v4, v3, v3""",
        "s_waitcnt vmcnt(0)\n",
        other="global_atomic_add",
    ),
    Twins(
        "LDS instructions return in order, whatever scalar loads do",
        "unwaited-register",
        """ds_write_b32 v1, v0
        ds_read_b32 v2, v1
        ds_read_b32 v3, v1
        s_load_dword s8, s[4:5], 0x0
        s_waitcnt lgkmcnt(1)
        v_add_u32 v4, v2, v2""",
        "lgkmcnt(1)",
        "lgkmcnt(2)",
        instruction="v_add_u32",
        other="ds_read_b32 v2",
        options={"lds": 256},
    ),
    Twins(
        "the last of the LDS instructions is not known to be back while a scalar load may be",
        "unwaited-register",
        """ds_write_b32 v1, v0
        s_load_dword s8, s[4:5], 0x0
        ds_read_b32 v2, v1
        s_waitcnt lgkmcnt(0)
        v_add_u32 v4, v2, v2""",
        "lgkmcnt(0)\n        v_add",
        "lgkmcnt(1)\n        v_add",
        instruction="v_add_u32",
        other="ds_read_b32 v2",
        options={"lds": 256},
    ),
    Twins(
        "a scalar load among LDS reads is only known to be back at 0",
        "unwaited-register",
        """ds_write_b32 v1, v0
        s_load_dword s8, s[4:5], 0x0
        ds_read_b32 v2, v1
        s_waitcnt lgkmcnt(0)
        s_add_u32 s9, s8, 1""",
        "lgkmcnt(0)\n        s_add",
        "lgkmcnt(1)\n        s_add",
        instruction="s_add_u32",
        other="s_load_dword s8",
        options={"lds": 256},
    ),
    Twins(
        "a FLAT load needs both counters",
        "unwaited-register",
        """v_mov_b32 v2, s4
        v_mov_b32 v3, s5
        flat_load_dword v4, v[2:3]
        s_waitcnt vmcnt(0) lgkmcnt(0)
        v_add_u32 v5, v4, v4""",
        "vmcnt(0) lgkmcnt(0)",
        "vmcnt(0)",
        instruction="v_add_u32",
        other="flat_load_dword",
    ),
    Twins(
        "a FLAT load needs both counters: the other one",
        "unwaited-register",
        """v_mov_b32 v2, s4
        v_mov_b32 v3, s5
        flat_load_dword v4, v[2:3]
        s_waitcnt lgkmcnt(0)
        s_waitcnt vmcnt(0)
        v_add_u32 v5, v4, v4""",
        "s_waitcnt vmcnt(0)\n",
        instruction="v_add_u32",
        other="flat_load_dword",
    ),
    Twins(
        "loads before a FLAT load still return in order",
        "unwaited-register",
        """v_mov_b32 v2, s4
        v_mov_b32 v3, s5
        global_load_dword v6, v1, s[4:5]
        global_load_dword v7, v1, s[4:5]
        flat_load_dword v4, v[2:3]
        s_waitcnt vmcnt(1)
        v_add_u32 v5, v6, v6""",
        "vmcnt(1)",
        "vmcnt(2)",
        instruction="v_add_u32",
        other="global_load_dword v6",
    ),
    Twins(
        "a copy to LDS counts in vmcnt in the order of issue",
        "lds-race",
        COPY_TO_LDS
        + """global_load_dword v2, v1, s[4:5]
        global_store_dword v1, v0, s[6:7]
        s_waitcnt vmcnt(2)
        ds_read_b32 v3, v1""",
        "vmcnt(2)",
        "vmcnt(3)",
        instruction="ds_read_b32",
        other="buffer_load_dword",
        options={"lds": 256},
    ),
    Twins(
        "a copy to LDS does not count in lgkmcnt",
        "lds-race",
        COPY_TO_LDS
        + """s_waitcnt vmcnt(0)
        ds_read_b32 v3, v1""",
        "vmcnt(0)",
        "lgkmcnt(0)",
        options={"lds": 256},
    ),
    Twins(
        "a wave waits for its copies to LDS before it ends",
        "copy-in-flight",
        COPY_TO_LDS
        + """global_store_dword v1, v0, s[6:7]
        s_waitcnt vmcnt(1)""",
        "s_waitcnt vmcnt(1)",
        instruction="s_endpgm",
        other="buffer_load_dword",
        options={"lds": 256},
    ),
    Twins(
        "vmcnt(62) is the largest that waits: 63 in its field means no wait",
        "unwaited-register",
        "".join(f"global_load_dword v{10 + i}, v1, s[4:5]\n" for i in range(70))
        + "s_waitcnt vmcnt(62)\n v_add_u32 v4, v17, v17",
        "vmcnt(62)",
        "vmcnt(63)",
        other="global_load_dword v17",
    ),
    Twins(
        "lgkmcnt(14) is the largest that waits: 15 in its field means no wait",
        "unwaited-register",
        "ds_write_b32 v1, v0\n"
        + "".join(f"ds_read_b32 v{10 + i}, v1\n" for i in range(20))
        + "s_waitcnt lgkmcnt(14)\n v_add_u32 v4, v15, v15",
        "lgkmcnt(14)",
        "lgkmcnt(15)",
        other="ds_read_b32 v15",
        options={"lds": 256},
    ),
]
