"""LDS: bounds, bytes never written, races between waves, copies from global memory."""

from __future__ import annotations

from tests.emulator.twins.twin import COPY_TO_LDS, DESCRIPTOR, Twins

# s8: the wave's first work-item; v2: 4 * lane, LDS bytes that the first wave has written
FIRST_WAVE_WRITES = """
  v_readfirstlane_b32 s8, v0
  v_and_b32 v2, 0xff, v1
  s_cmp_lt_u32 s8, 64
  s_cbranch_scc0 begun
  ds_write_b32 v2, v0
  s_waitcnt lgkmcnt(0)
  begun:
  s_barrier
"""

TWINS = [
    Twins(
        "LDS past what was asked for",
        "lds-out-of-bounds",
        "ds_write_b32 v1, v0 offset:256",
        "offset:256",
        "offset:260",
        options={"lds": 512},
    ),
    Twins(
        "a misaligned LDS access",
        "misaligned",
        "v_lshlrev_b32 v2, 3, v0\n ds_write_b64 v2, v[0:1]",
        "v2, v[0:1]",
        "v2, v[0:1] offset:4",
        options={"lds": 1024},
    ),
    Twins(
        "LDS read before it was written",
        "lds-unwritten",
        "ds_write_b32 v1, v0\n ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)",
        "ds_write_b32 v1, v0\n",
        options={"lds": 256},
    ),
    Twins(
        "two bytes of four were written",
        "lds-unwritten",
        "ds_write_b32 v1, v0\n ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)",
        "ds_write_b32",
        "ds_write_b16",
        options={"lds": 256},
    ),
    Twins(
        "one wave reads what another wrote, without a barrier",
        "lds-race",
        """v_xor_b32 v2, 0x100, v1
        ds_write_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_read_b32 v3, v2
        s_waitcnt lgkmcnt(0)""",
        "s_barrier\n",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "a write that was not waited for before the barrier",
        "lds-race",
        """v_xor_b32 v2, 0x100, v1
        ds_write_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_read_b32 v3, v2""",
        "s_waitcnt lgkmcnt(0)\n        s_barrier",
        "s_barrier",
        instruction="ds_read_b32",
        other="ds_write_b32",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "a read in flight across the barrier before the overwrite",
        "lds-race",
        """v_xor_b32 v2, 0x100, v1
        ds_write_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_read_b32 v3, v2
        s_waitcnt lgkmcnt(0) ; read
        s_barrier
        ds_write_b32 v1, v1""",
        "s_waitcnt lgkmcnt(0) ; read\n",
        instruction="ds_write_b32",
        other="ds_read_b32",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "an overwrite without a barrier after the reads",
        "lds-race",
        """v_xor_b32 v2, 0x100, v1
        ds_write_b32 v1, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_read_b32 v3, v2
        s_waitcnt lgkmcnt(0)
        s_barrier ; second
        ds_write_b32 v1, v1""",
        "s_barrier ; second\n",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "a copy to LDS read before its wait by its own wave",
        "lds-race",
        COPY_TO_LDS
        + """s_waitcnt vmcnt(0)
        ds_read_b32 v2, v1""",
        "s_waitcnt vmcnt(0)\n",
        instruction="ds_read_b32",
        other="buffer_load_dword",
        options={"lds": 256},
    ),
    Twins(
        "a copy to LDS that the barrier does not publish",
        "lds-race",
        DESCRIPTOR
        + """v_readfirstlane_b32 s12, v1
        v_xor_b32 v2, 0x100, v1
        s_mov_b32 m0, s12
        s_nop 0
        buffer_load_dword v1, s[8:11], 0 offen lds
        s_waitcnt vmcnt(0)
        s_barrier
        ds_read_b32 v3, v2""",
        "s_waitcnt vmcnt(0)\n",
        instruction="ds_read_b32",
        other="buffer_load_dword",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "a copy over LDS bytes that are still being read",
        "lds-race",
        DESCRIPTOR
        + """ds_write_b32 v1, v0
        s_mov_b32 m0, 0
        s_waitcnt lgkmcnt(0)
        ds_read_b32 v3, v1
        s_waitcnt lgkmcnt(0)
        buffer_load_dword v1, s[8:11], 0 offen lds
        s_waitcnt vmcnt(0)""",
        "s_waitcnt lgkmcnt(0)\n        buffer",
        "buffer",
        instruction="buffer_load_dword",
        other="ds_read_b32",
        options={"lds": 256},
    ),
    Twins(
        "a copy past the end of LDS",
        "lds-out-of-bounds",
        COPY_TO_LDS + """s_waitcnt vmcnt(0)""",
        "m0, 0",
        "m0, 4",
        options={"lds": 256},
    ),
    Twins(
        "two waves write the same bytes",
        "lds-race",
        "v_and_b32 v2, 0x1fc, v1\n ds_write_b32 v2, v0",
        "0x1fc",
        "0xfc",
        instruction="ds_write_b32",
        other="ds_write_b32",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "atomics of several waves do not race; a read and an atomic do",
        "lds-race",
        """v_mov_b32 v2, 0
        ds_write_b32 v1, v2
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_add_u32 v2, v0
        s_waitcnt lgkmcnt(0)
        s_barrier ; between
        ds_read_b32 v3, v2""",
        "s_barrier ; between\n",
        instruction="ds_",
        other="ds_",
        options={"lds": 1024, "block": 256},
    ),
    Twins(
        "LDS that a copy has filled counts as written",
        "lds-unwritten",
        COPY_TO_LDS
        + """s_waitcnt vmcnt(0)
        ds_read_b32 v3, v1 offset:0""",
        "offset:0",
        "offset:4",
        instruction="ds_read_b32",
        options={"lds": 512},
    ),
    Twins(
        "a copy over LDS bytes that another wave reads",
        "lds-race",
        DESCRIPTOR
        + """ds_write_b32 v1, v0
        v_readfirstlane_b32 s12, v1
        s_xor_b32 s12, s12, 0x100
        s_mov_b32 m0, s12
        s_waitcnt lgkmcnt(0)
        ds_read_b32 v3, v1
        s_waitcnt lgkmcnt(0)
        s_barrier
        buffer_load_dword v1, s[8:11], 0 offen lds
        s_waitcnt vmcnt(0)""",
        "s_barrier\n",
        options={"lds": 512, "block": 128},
    ),
    Twins(
        "two waves read, then one of them writes",
        "lds-race",
        FIRST_WAVE_WRITES
        + """ds_read_b32 v3, v2
        s_waitcnt lgkmcnt(0)
        s_barrier
        s_cmp_lt_u32 s8, 64
        s_cbranch_scc1 done
        ds_write_b32 v2, v0
        done:""",
        "ds_read_b32 v3, v2\n        s_waitcnt lgkmcnt(0)\n        s_barrier",
        "ds_read_b32 v3, v2\n        s_waitcnt lgkmcnt(0)",
        options={"lds": 256, "block": 128},
    ),
    Twins(
        "the first of two bytes of a dword that another wave wrote",
        "lds-race",
        """v_readfirstlane_b32 s8, v0
        v_and_b32 v2, 0xff, v1
        s_cmp_lt_u32 s8, 64
        s_cbranch_scc0 second
        ds_write_b8 v2, v0
        ds_write_b8 v2, v0 offset:1
        s_waitcnt lgkmcnt(0)
        second: s_barrier
        ds_read_u8 v3, v2""",
        "second: s_barrier",
        "second:",
        options={"lds": 256, "block": 128},
    ),
]
