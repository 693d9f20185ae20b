"""Memory in which lanes meet: LDS read by another lane than wrote it, and atomics on one place.

Loads and stores of a lane's own bytes are in test_loads_and_stores.py, ranges of buffers in
test_buffers.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.assembly import LANES, needs_llvm, output, result, run

pytestmark = needs_llvm


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
