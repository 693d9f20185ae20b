"""Memory as the machine executes it: global memory, buffers, LDS and scratch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.assembly import needs_llvm, run
from tests.emulator.outputs import LANES, output, result

pytestmark = needs_llvm


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("global_load_ubyte v2, v1, s[4:5]", lambda b: b[::4].astype(np.uint32)),
        ("global_load_sbyte v2, v1, s[4:5]", lambda b: b[::4].astype(np.int8).astype(np.int32)),
        ("global_load_ushort v2, v1, s[4:5] offset:2", lambda b: b.view(np.uint16)[1::2]),
        ("global_load_sshort v2, v1, s[4:5]", lambda b: b.view(np.int16)[::2].astype(np.int32)),
        (
            "global_load_short_d16_hi v2, v1, s[4:5]",
            lambda b: b.view(np.uint16)[::2].astype("u4") << 16,
        ),
        ("global_load_dword v2, v1, s[4:5]", lambda b: b.view(np.uint32)),
    ],
)
def test_narrow_loads(instruction, expected) -> None:
    data = np.random.default_rng(0).integers(0, 256, 256, dtype=np.uint8)
    out = result(f"{instruction}\n s_waitcnt vmcnt(0)\n global_store_dword v1, v2, s[6:7]", data)
    np.testing.assert_array_equal(out, np.asarray(expected(data)).astype(np.uint32))


@pytest.mark.parametrize(("suffix", "dwords"), [("dwordx2", 2), ("dwordx3", 3), ("dwordx4", 4)])
@pytest.mark.parametrize("space", ["global", "buffer"])
def test_wide_copies(space, suffix, dwords) -> None:
    data = np.random.default_rng(1).integers(0, 2**32, 64 * dwords, dtype=np.uint32)
    registers = f"v[4:{3 + dwords}]"
    if space == "global":
        load, store = "v2, s[4:5]", f"v2, {registers}, s[6:7]"
        load = f"global_load_{suffix} {registers}, {load}"
        store = f"global_store_{suffix} {store}"
        setup = ""
    else:
        setup = f"""
          s_mov_b32 s8, s4
          s_mov_b32 s9, s5
          s_mov_b32 s10, {data.nbytes}
          s_mov_b32 s11, 0x20000
          s_mov_b32 s12, s6
          s_mov_b32 s13, s7
          s_mov_b32 s14, {data.nbytes}
          s_mov_b32 s15, 0x20000"""
        load = f"buffer_load_{suffix} {registers}, v2, s[8:11], 0 offen"
        store = f"buffer_store_{suffix} {registers}, v2, s[12:15], 0 offen"
    out = result(
        f"{setup}\n v_mul_u32_u24 v2, {4 * dwords}, v0\n {load}\n s_waitcnt vmcnt(0)\n {store}",
        data,
        64 * dwords,
    )
    np.testing.assert_array_equal(out, data)


DESCRIPTOR = """
  s_mov_b32 s8, s4
  s_mov_b32 s9, s5
  s_mov_b32 s10, {records}
  s_mov_b32 s11, 0x20000
"""


def test_buffer_loads_past_num_records_give_zeros() -> None:
    data = np.arange(1, 65, dtype=np.uint32)
    body = (
        DESCRIPTOR.format(records=4 * 50)
        + """
      buffer_load_dword v2, v1, s[8:11], 0 offen
      s_waitcnt vmcnt(0)
      global_store_dword v1, v2, s[6:7]"""
    )
    np.testing.assert_array_equal(result(body, data), np.where(LANES < 50, data, 0))


def test_scalar_offset_shrinks_the_range_of_a_raw_buffer() -> None:
    data = np.arange(1, 81, dtype=np.uint32)
    body = (
        DESCRIPTOR.format(records=4 * 50)
        + """
      s_movk_i32 s12, 0x40
      buffer_load_dword v2, v1, s[8:11], s12 offen
      s_waitcnt vmcnt(0)
      global_store_dword v1, v2, s[6:7]"""
    )
    np.testing.assert_array_equal(result(body, data), np.where(LANES + 16 < 50, LANES + 17, 0))


def test_each_dword_of_a_wide_buffer_load_has_its_own_range_check() -> None:
    data = np.arange(1, 257, dtype=np.uint32)
    body = (
        DESCRIPTOR.format(records=4 * 6)
        + """
      v_lshlrev_b32 v3, 4, v0
      buffer_load_dwordx4 v[4:7], v3, s[8:11], 0 offen
      s_waitcnt vmcnt(0)
      global_store_dwordx4 v3, v[4:7], s[6:7]"""
    )
    expected = np.where(np.arange(256) < 6, data, 0)
    np.testing.assert_array_equal(result(body, data, 256), expected)


def test_buffer_stores_past_num_records_are_dropped() -> None:
    out = output()
    body = (
        DESCRIPTOR.replace("s4", "s6").replace("s5", "s7").format(records=4 * 20)
        + """
      buffer_store_dword v0, v1, s[8:11], 0 offen"""
    )
    report = run(body, None, out)
    assert not report.findings
    np.testing.assert_array_equal(out, np.where(LANES < 20, LANES, 0xDEADBEEF))


@pytest.mark.parametrize("width", ["b32", "b64", "b128", "b96"])
def test_lds_round_trip(width) -> None:
    dwords = int(width[1:]) // 32
    stride = 16 if dwords == 3 else 4 * dwords
    registers = "v4" if dwords == 1 else f"v[4:{3 + dwords}]"
    back = "v12" if dwords == 1 else f"v[12:{11 + dwords}]"
    fill = "\n".join(f"v_add_u32 v{4 + i}, {100 * i}, v0" for i in range(dwords))
    body = f"""
      {fill}
      v_mul_u32_u24 v2, {stride}, v0
      ds_write_{width} v2, {registers}
      ds_read_{width} {back}, v2
      v_mul_u32_u24 v3, {4 * dwords}, v0
      s_waitcnt lgkmcnt(0)
      global_store_dword{"x" + str(dwords) if dwords > 1 else ""} v3, {back}, s[6:7]"""
    out = result(body, dwords=64 * dwords, lds=1024 * 4)
    expected = LANES[:, None] + 100 * np.arange(dwords)
    np.testing.assert_array_equal(out.reshape(64, dwords), expected)


def test_lds_read2_and_write2() -> None:
    body = """
      v_add_u32 v4, 7, v0
      ds_write2_b32 v1, v0, v4 offset1:64
      ds_read2st64_b32 v[6:7], v1 offset1:1
      s_waitcnt lgkmcnt(0)
      v_add_u32 v6, v6, v7
      global_store_dword v1, v6, s[6:7]"""
    np.testing.assert_array_equal(result(body, lds=512), 2 * LANES + 7)


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


@pytest.mark.parametrize(
    ("instruction", "source"),
    [
        ("ds_swizzle_b32 v2, v0 offset:swizzle(SWAP,16)", LANES ^ 16),
        ("ds_swizzle_b32 v2, v0 offset:swizzle(QUAD_PERM,1,0,3,2)", LANES ^ 1),
        ("ds_bpermute_b32 v2, v5, v0", (LANES + 5) % 64),
        ("ds_permute_b32 v2, v5, v0", (LANES - 5) % 64),
    ],
)
def test_lanes_exchange(instruction, source) -> None:
    body = f"""
      v_add_u32 v5, 5, v0
      v_lshlrev_b32 v5, 2, v5
      {instruction}
      s_waitcnt lgkmcnt(0)
      global_store_dword v1, v2, s[6:7]"""
    np.testing.assert_array_equal(result(body), source)


@pytest.mark.parametrize("instruction", ["buffer_load_dword", "buffer_load_dwordx4"])
def test_copies_to_lds_land_lane_by_lane_after_m0(instruction) -> None:
    dwords = 4 if instruction.endswith("x4") else 1
    data = np.random.default_rng(2).integers(0, 2**32, 64 * dwords, dtype=np.uint32)
    body = (
        DESCRIPTOR.format(records=data.nbytes - 16)
        + f"""
      s_movk_i32 m0, 0x100
      v_mul_u32_u24 v2, {4 * dwords}, v0
      s_nop 0
      {instruction} v2, s[8:11], 0 offen lds
      s_waitcnt vmcnt(0)
      v_add_u32 v3, 0x100, v1
    """
        + "".join(
            f"ds_read_b32 v4, v3 offset:{256 * i}\n s_waitcnt lgkmcnt(0)\n"
            f"global_store_dword v1, v4, s[6:7] offset:{256 * i}\n s_waitcnt vmcnt(0)\n"
            for i in range(dwords)
        )
    )
    expected = np.where(np.arange(64 * dwords) < 64 * dwords - 4, data, 0)
    np.testing.assert_array_equal(result(body, data, 64 * dwords, lds=2048), expected)


def test_atomics_return_what_was_there() -> None:
    out = output()
    out[:] = 5
    body = """
      v_mov_b32 v2, 0
      global_atomic_add v3, v2, v0, s[6:7] sc0
      s_waitcnt vmcnt(0)"""
    report = run(body, None, out)
    assert not report.findings
    assert out[0] == 5 + LANES.sum()


def test_scratch_belongs_to_a_lane() -> None:
    body = """
      v_add_u32 v4, 9, v0
      scratch_store_dword off, v4, off offset:8
      s_waitcnt vmcnt(0)
      scratch_load_dword v5, off, off offset:8
      s_waitcnt vmcnt(0)
      global_store_dword v1, v5, s[6:7]"""
    np.testing.assert_array_equal(result(body, scratch=16), LANES + 9)
