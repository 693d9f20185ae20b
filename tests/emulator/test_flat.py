"""FLAT instructions on global memory, LDS and scratch: by the address of each lane."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.assembly import needs_llvm, run

pytestmark = needs_llvm

LANES = np.arange(64, dtype=np.uint32)
# v[2:3]: of lanes 0, 3, 6... global memory (s[6:7]), of 1, 4... LDS, of 2, 5... scratch
ADDRESSES = """
  s_mov_b64 s[8:9], src_shared_base
  s_mov_b64 s[10:11], src_private_base
  v_mov_b32 v4, 0x55555556
  v_mul_hi_u32 v4, v4, v0
  v_mul_u32_u24 v4, 3, v4
  v_sub_u32 v4, v0, v4
  v_mov_b32 v2, s6
  v_mov_b32 v3, s7
  v_mul_u32_u24 v5, 16, v0
  v_add_co_u32 v2, vcc, v2, v5
  s_nop 1
  v_addc_co_u32 v3, vcc, 0, v3, vcc
  v_cmp_eq_u32 vcc, 1, v4
  s_nop 4
  v_mov_b32 v6, s9
  v_cndmask_b32 v3, v3, v6, vcc
  v_cndmask_b32 v2, v2, v5, vcc
  v_cmp_eq_u32 vcc, 2, v4
  s_nop 4
  v_mov_b32 v6, s11
  v_cndmask_b32 v3, v3, v6, vcc
  v_mov_b32 v6, 16
  v_cndmask_b32 v2, v2, v6, vcc
"""
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
RESULT = "v_add_u32 v5, 1024, v5\n global_store_dwordx4 v5, v[12:15], s[6:7]"


def result(body: str) -> tuple[np.ndarray, dict[str, int]]:
    """(what lanes got, [64, 4] dwords; bytes counted) of a program without findings."""
    out = np.zeros(512, np.uint32)
    report = run(ADDRESSES + body, None, out, lds=1024, scratch=32)
    assert not report.findings, [f.message for f in report.findings]
    return out[256:].reshape(64, 4), report.counters.bytes


@pytest.mark.parametrize("dwords", [1, 2, 3, 4])
def test_each_lane_reaches_its_memory(dwords: int) -> None:
    registers = "v8" if dwords == 1 else f"v[8:{7 + dwords}]"
    back = registers.replace("8:", "12:").replace(f":{7 + dwords}", f":{11 + dwords}")
    back = "v12" if dwords == 1 else back
    suffix = f"dwordx{dwords}" if dwords > 1 else "dword"
    fill = "".join(f"v_add_u32 v{8 + i}, {1000 * i}, v0\n" for i in range(4))
    fill += "".join(f"v_mov_b32 v{12 + i}, 0\n" for i in range(4))
    got, counted = result(
        f"{fill} flat_store_{suffix} v[2:3], {registers}\n {WAIT}"
        f"flat_load_{suffix} {back}, v[2:3]\n {WAIT} {RESULT}"
    )
    expected = np.where(np.arange(4) < dwords, LANES[:, None] + 1000 * np.arange(4), 0)
    np.testing.assert_array_equal(got, expected)
    assert counted["lds_read"] == counted["lds_write"] == 21 * 4 * dwords


def test_lds_and_scratch_are_those_of_other_instructions() -> None:
    body = f"""
      v_mov_b32 v13, 0
      v_mov_b32 v14, 0
      v_mov_b32 v15, 0
      v_add_u32 v8, 7, v0
      flat_store_dword v[2:3], v8 offset:4
      {WAIT}
      v_mov_b32 v12, 0
      v_cmp_eq_u32 vcc, 1, v4
  s_nop 4
      s_and_saveexec_b64 s[12:13], vcc
      ds_read_b32 v12, v5 offset:4
      {WAIT}
      s_mov_b64 exec, s[12:13]
      s_nop 4
      v_cmp_eq_u32 vcc, 2, v4
  s_nop 4
      s_and_saveexec_b64 s[12:13], vcc
      scratch_load_dword v12, off, off offset:20
      {WAIT}
      s_mov_b64 exec, s[12:13]
      {RESULT}"""
    got, _ = result(body)
    np.testing.assert_array_equal(got[:, 0], np.where(LANES % 3 == 0, 0, LANES + 7))


def test_narrow_loads_and_high_halves() -> None:
    body = f"""
      v_mov_b32 v8, 0x8081fe7f
      flat_store_dword v[2:3], v8
      {WAIT}
      flat_load_sbyte v12, v[2:3] offset:1
      flat_load_ushort v13, v[2:3] offset:2
      flat_load_short_d16_hi v14, v[2:3]
      flat_load_ubyte v15, v[2:3] offset:3
      {WAIT} {RESULT}"""
    got, _ = result(body)
    expected = np.array([0xFFFFFFFE, 0x8081, 0xFE7F0000, 0x80], np.uint32)
    np.testing.assert_array_equal(got, np.tile(expected, (64, 1)))


def test_atomics_on_lds_and_global_memory() -> None:
    body = f"""
      v_mov_b32 v14, 0
      v_mov_b32 v15, 0
      v_mov_b32 v8, 40
      flat_store_dword v[2:3], v8
      {WAIT}
      v_mov_b32 v12, 0
      v_mov_b32 v13, 0
      v_cmp_ne_u32 vcc, 2, v4
  s_nop 4
      s_and_saveexec_b64 s[12:13], vcc
      flat_atomic_add v12, v[2:3], v0 sc0
      {WAIT}
      flat_load_dword v13, v[2:3]
      {WAIT}
      s_mov_b64 exec, s[12:13]
      {RESULT}"""
    got, _ = result(body)
    some = LANES % 3 != 2
    np.testing.assert_array_equal(got[:, 0], np.where(some, 40, 0))
    np.testing.assert_array_equal(got[:, 1], np.where(some, 40 + LANES, 0))
