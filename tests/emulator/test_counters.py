"""What the machine counts of a launch."""

from __future__ import annotations

import pytest

from tests.emulator.assembly import needs_llvm, output, run

pytestmark = needs_llvm


def test_counters() -> None:
    body = """
      v_mov_b32 v2, 0
      v_mov_b32 v3, 0
      v_mov_b32 v4, 0
      v_mov_b32 v5, 0
      v_mov_b32 v6, 0
      v_mov_b32 v7, 0
      v_mov_b32 v8, 0
      v_mov_b32 v9, 0
      s_nop 1
      v_mfma_f32_16x16x32_bf16 v[12:15], v[2:5], v[6:9], 0
      v_lshlrev_b32 v20, 4, v0
      ds_write_b128 v20, v[2:5]
      ds_read_b128 v[24:27], v20
      s_waitcnt lgkmcnt(0)
      global_store_dword v1, v0, s[6:7]"""
    report = run(body, None, output(128), lds=2048, block=128)
    counters = report.counters
    assert not report.findings, report.findings
    assert counters.matrix_flops == 2 * 2 * 16 * 16 * 32
    assert counters.by_mnemonic["v_mov_b32"] == 2 * 8
    assert counters.by_class["matrix"] == 2
    assert counters.by_class["end"] == 2
    assert counters.instructions == 2 * (3 + 8 + 1 + 1 + 1 + 2 + 1 + 1 + 1)
    assert counters.bytes["lds_read"] == counters.bytes["lds_write"] == 2 * 64 * 16
    assert counters.bytes["global_write"] == 2 * 64 * 4
    assert counters.bytes["global_read"] == 2 * 16
    assert counters.lds_unmodelled == {"ds_write_b128": 2}
    assert list(counters.lds_phases.values()) == [[2 * 4, 2 * 4]]


def test_counters_tell_how_often_each_instruction_was_executed() -> None:
    body = """
      s_mov_b32 s8, 10
    loop:
      s_sub_u32 s8, s8, 1
      s_cmp_lg_u32 s8, 0
      s_cbranch_scc1 loop
      s_cbranch_scc0 end
      s_nop 7
    end:"""
    report = run(body, None, output(), block=192, prologue="")
    times = [1, 10, 10, 10, 1, 1]  # never: s_nop at 20
    pcs = [0, 4, 8, 12, 16, 24]
    assert report.counters.executed == {pc: 3 * n for pc, n in zip(pcs, times, strict=True)}


@pytest.mark.parametrize(
    ("stride", "taken"),
    [(16, 4), (32, 8), (256, 64), (0, 4)],  # 64 banks: all lanes on the same 4; one address: 1 each
)
def test_bank_phases_of_ds_read_b128(stride, taken) -> None:
    body = f"""
      v_mov_b32 v2, 0
      v_mov_b32 v3, 0
      v_mov_b32 v4, 0
      v_mov_b32 v5, 0
      v_mul_u32_u24 v20, {stride}, v0
      ds_write_b128 v20, v[2:5]
      ds_read_b128 v[24:27], v20
      s_waitcnt lgkmcnt(0)"""
    report = run(body, lds=64 * 256, launch={"checks": False})
    assert list(report.counters.lds_phases.values()) == [[taken, 4]]
