"""FLAT instructions, which reach global memory, LDS and scratch by the address of each lane; LDS
that another lane wrote, and atomics on one place."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.assembly import LANES, lines, output, result, run, run_clean, vgprs

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


@pytest.mark.parametrize("dwords", [1, 4])
def test_each_lane_reaches_its_memory(dwords: int) -> None:
    data, back = vgprs(8, dwords), vgprs(12, dwords)
    suffix = f"dwordx{dwords}" if dwords > 1 else "dword"
    fill = "".join(f"v_add_u32 v{8 + i}, {1000 * i}, v0\n" for i in range(4))
    zeros = lines("v_mov_b32 v{}, 0", *range(12, 16))
    store, load = f"flat_store_{suffix} v[2:3], {data}\n", f"flat_load_{suffix} {back}, v[2:3]\n"
    body = f"{ADDRESSES}{zeros}{fill}{store}{WAIT}{load}{WAIT}{RESULT}"
    out = np.zeros(512, np.uint32)
    counted = run_clean(body, None, out, lds=1024, scratch=32).counters.bytes
    expected = np.where(np.arange(4) < dwords, LANES[:, None] + 1000 * np.arange(4), 0)
    np.testing.assert_array_equal(out[256:].reshape(64, 4), expected)
    assert counted["lds_read"] == counted["lds_write"] == 21 * 4 * dwords


# --- where lanes meet -----------------------------------------------------------------------------


def test_transposed_lds_read_gives_lane_i_column_i() -> None:
    # 16 lanes cover 4 rows of 16 elements; element (row, column) = 100 * row + column
    element = np.zeros((4, 4, 16), dtype=np.uint16)  # group of 16 lanes, row, column
    element[:] = 1000 * np.arange(4)[:, None, None] + 100 * np.arange(4)[:, None] + np.arange(16)
    body = """
      v_lshlrev_b32 v2, 3, v0
      global_load_dwordx2 v[4:5], v2, s[4:5]
      s_waitcnt vmcnt(0)
      ds_write_b64 v2, v[4:5]
      ds_read_b64_tr_b16 v[6:7], v2
      s_waitcnt lgkmcnt(0)
      global_store_dwordx2 v2, v[6:7], s[6:7]"""
    out = result(body, element, 128, lds=512).view(np.uint16).reshape(4, 16, 4)
    np.testing.assert_array_equal(out, element.transpose(0, 2, 1))


@pytest.mark.parametrize(("bits", "rows"), [(8, 8), (4, 16)])
def test_transposed_reads_of_small_elements(bits: int, rows: int) -> None:
    """16 lanes cover `rows` rows of 16 elements; lane i gets column i."""
    element = np.random.default_rng(bits).integers(0, 1 << bits, (4, rows, 16), dtype=np.uint8)
    columns = element.transpose(0, 2, 1)

    def packed(values: np.ndarray) -> np.ndarray:
        pairs = values.reshape(-1, 2) if bits == 4 else values.reshape(-1, 1)
        return pairs[:, 0] | pairs[:, -1] << 4 if bits == 4 else pairs[:, 0]

    body = f"""
      v_lshlrev_b32 v2, 3, v0
      global_load_dwordx2 v[4:5], v2, s[4:5]
      s_waitcnt vmcnt(0)
      ds_write_b64 v2, v[4:5]
      ds_read_b64_tr_b{bits} v[6:7], v2
      s_waitcnt lgkmcnt(0)
      global_store_dwordx2 v2, v[6:7], s[6:7]"""
    out = result(body, packed(element), 128, lds=512).view(np.uint8)
    np.testing.assert_array_equal(out, packed(columns))


@pytest.mark.parametrize(
    ("instruction", "source"),
    [
        ("ds_swizzle_b32 v2, v0 offset:swizzle(SWAP,16)", LANES ^ 16),
        ("ds_swizzle_b32 v2, v0 offset:swizzle(QUAD_PERM,1,0,3,2)", LANES ^ 1),
        ("ds_bpermute_b32 v2, v5, v0", (LANES + 5) % 64),
        ("ds_permute_b32 v2, v5, v0", (LANES - 5) % 64),
    ],
)
def test_lanes_exchange(instruction: str, source: np.ndarray) -> None:
    body = f"""
      v_add_u32 v5, 5, v0
      v_lshlrev_b32 v5, 2, v5
      {instruction}
      s_waitcnt lgkmcnt(0)
      global_store_dword v1, v2, s[6:7]"""
    np.testing.assert_array_equal(result(body), source)


def test_atomics_of_all_lanes_on_one_place_add_up() -> None:
    out = output()
    out[:] = 5
    report = run("v_mov_b32 v2, 0\n global_atomic_add v2, v0, s[6:7]", None, out)
    assert not report.findings
    assert out[0] == 5 + LANES.sum()
    np.testing.assert_array_equal(out[1:], 5)
