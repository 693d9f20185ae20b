"""FLAT instructions, which reach LDS and scratch through their apertures."""

from __future__ import annotations

from tests.emulator.twins.twin import Twins

# v[2:3]: 4 * work-item in LDS; v[4:5]: the begin of scratch
LDS = "s_mov_b64 s[8:9], src_shared_base\n v_mov_b32 v2, v1\n v_mov_b32 v3, s9\n"
SCRATCH = "s_mov_b64 s[8:9], src_private_base\n v_mov_b32 v4, 0\n v_mov_b32 v5, s9\n"
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)\n"

TWINS = [
    Twins(
        "LDS past its end through FLAT",
        "lds-out-of-bounds",
        LDS + "flat_store_dword v[2:3], v0 offset:16",
        "offset:16",
        "offset:20",
        options={"lds": 272},
    ),
    Twins(
        "LDS that nobody wrote, read through FLAT",
        "lds-unwritten",
        LDS + "ds_write_b32 v1, v0\n" + WAIT + "flat_load_dword v6, v[2:3]",
        "flat_load_dword v6, v[2:3]",
        "flat_load_dword v6, v[2:3] offset:64",
        options={"lds": 512},
    ),
    Twins(
        "a misaligned FLAT access to LDS",
        "misaligned",
        LDS + "flat_store_dword v[2:3], v0",
        "v0",
        "v0 offset:2",
        options={"lds": 512},
    ),
    Twins(
        "scratch past its end through FLAT",
        "out-of-bounds",
        SCRATCH + "flat_store_dword v[4:5], v0 offset:12",
        "offset:12",
        "offset:16",
        options={"scratch": 16},
    ),
    Twins(
        "an atomic access to scratch",
        "unsupported-instruction",
        SCRATCH + "flat_store_dword v[4:5], v0",
        "flat_store_dword",
        "flat_atomic_add",
        options={"scratch": 16},
    ),
    Twins(
        "scratch before its begin",
        "out-of-bounds",
        "scratch_store_dword off, v0, off",
        "off, v0, off",
        "off, v0, off offset:-4",
        options={"scratch": 16},
    ),
    Twins(
        "a FLAT atomic on LDS that nobody wrote",
        "lds-unwritten",
        LDS + "ds_write_b32 v1, v0\n" + WAIT + "flat_atomic_add v[2:3], v0",
        "ds_write_b32 v1, v0\n",
        options={"lds": 256},
    ),
    Twins(
        "a FLAT result that one counter's wait has left out",
        "unwaited-register",
        LDS + "flat_store_dword v[2:3], v0\n" + WAIT + "flat_load_dword v6, v[2:3]\n"
        "s_waitcnt lgkmcnt(0)\n s_waitcnt vmcnt(0)\n v_mov_b32 v7, v6",
        "s_waitcnt lgkmcnt(0)\n s_waitcnt vmcnt(0)",
        "s_waitcnt lgkmcnt(1)\n s_waitcnt vmcnt(0)",
        other="flat_load_dword",
        options={"lds": 256},
    ),
    Twins(
        "a FLAT result counts in lgkmcnt too",
        "unwaited-register",
        LDS + "flat_store_dword v[2:3], v0\n" + WAIT + "flat_load_dword v6, v[2:3]\n"
        "s_waitcnt lgkmcnt(0) vmcnt(0)\n v_mov_b32 v7, v6",
        "s_waitcnt lgkmcnt(0) vmcnt(0)",
        "s_waitcnt vmcnt(0)",
        other="flat_load_dword",
        options={"lds": 256},
    ),
    Twins(
        "a FLAT result counts in vmcnt too",
        "unwaited-register",
        LDS + "flat_store_dword v[2:3], v0\n" + WAIT + "flat_load_dword v6, v[2:3]\n"
        "s_waitcnt lgkmcnt(0) vmcnt(0)\n v_mov_b32 v7, v6",
        "s_waitcnt lgkmcnt(0) vmcnt(0)",
        "s_waitcnt lgkmcnt(0)",
        other="flat_load_dword",
        options={"lds": 256},
    ),
    Twins(
        "a FLAT store to LDS in flight across the barrier before another wave's read",
        "lds-race",
        LDS + "v_xor_b32 v8, 0x100, v1\n flat_store_dword v[2:3], v0\n"
        "s_waitcnt lgkmcnt(0) vmcnt(0)\n s_barrier\n ds_read_b32 v6, v8",
        "s_waitcnt lgkmcnt(0) vmcnt(0)",
        "s_waitcnt vmcnt(0)",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "a FLAT load of LDS in flight across the barrier before another wave's store",
        "lds-race",
        LDS + "v_xor_b32 v8, 0x100, v1\n ds_write_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n s_barrier\n"
        "flat_load_dword v6, v[2:3]\n s_waitcnt vmcnt(0) lgkmcnt(0)\n s_barrier\n"
        "ds_write_b32 v8, v0",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
        "s_nop 0",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "two waves' FLAT and DS accesses of the same bytes without a barrier",
        "lds-race",
        LDS
        + "v_xor_b32 v8, 0x100, v1\n flat_store_dword v[2:3], v0\n"
        + WAIT
        + "s_barrier\n ds_read_b32 v6, v8",
        "s_barrier\n",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "an offset that leads from global memory into LDS",
        "ambiguous",
        LDS + "flat_store_dword v[2:3], v0 offset:4",
        "v_mov_b32 v2, v1\n v_mov_b32 v3, s9\n",
        "v_mov_b32 v2, -4\n v_mov_b32 v3, 0xffff\n",
        options={"lds": 512},
    ),
]
