"""Instructions that steer a program (branches, calls, MODE), and its loads to SGPRs and to LDS."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.assembly import LANES, checks, raw_buffer, result, run
from tests.emulator.lanes import Wave

STORE = "v_mov_b32 v2, {}\n global_store_dword v1, v2, s[6:7]"
SCC = {True: "s_cmp_eq_u32 s2, s2", False: "s_cmp_lg_u32 s2, s2"}
ONE_BIT = "s_mov_b64 {0}, 0\n s_mov_b32 {0}_hi, 0x100"
NO_BIT = "s_mov_b64 {0}, 0"
BRANCHES = [
    ("s_branch", "", True),
    *(("s_cbranch_scc1", SCC[scc], scc) for scc in SCC),
    *(("s_cbranch_scc0", SCC[scc], not scc) for scc in SCC),
    *(
        (f"s_cbranch_{mask}{kind}", setup.format(mask), (kind == "z") == (setup is NO_BIT))
        for mask in ("vcc", "exec")
        for kind in ("z", "nz")
        for setup in (NO_BIT, ONE_BIT)
    ),
]


@pytest.mark.parametrize(("name", "setup", "taken"), BRANCHES)
def test_branches(name: str, setup: str, taken: bool) -> None:
    """A branch on a mask looks at every bit of it."""
    body = f"""
      s_mov_b32 s8, 1
      {setup}
      {name} over
      s_mov_b32 s8, 2
      over:
      s_mov_b64 exec, -1
      {STORE.format("s8")}"""
    np.testing.assert_array_equal(result(body), np.full(64, 1 if taken else 2))


def test_calls_return_behind_themselves() -> None:
    """The function adds 1 and is called twice; what a jump passes over adds 10000."""
    body = f"""
      s_mov_b32 s10, 0
      s_getpc_b64 s[8:9]
      here:
      s_add_u32 s8, s8, function-here
      s_addc_u32 s9, s9, 0
      s_swappc_b64 s[12:13], s[8:9]
      s_add_u32 s10, s10, 10
      s_call_b64 s[12:13], function
      s_add_u32 s10, s10, 100
      s_getpc_b64 s[8:9]
      there:
      s_add_u32 s8, s8, end-there
      s_addc_u32 s9, s9, 0
      s_setpc_b64 s[8:9]
      s_add_u32 s10, s10, 10000
      function:
      s_add_u32 s10, s10, 1
      s_setpc_b64 s[12:13]
      end:
      {STORE.format("s10")}"""
    np.testing.assert_array_equal(result(body), np.full(64, 112))


@pytest.mark.parametrize("name", ["s_setreg_b32", "s_setreg_imm32_b32"])
def test_fields_of_mode(name: str) -> None:
    """A field of any offset and size is set, read back, and leaves the rest of MODE alone."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        offset, mode, value = (int(rng.integers(n)) for n in (32, 1 << 32, 1 << 32))
        size = int(rng.integers(1, 33 - offset))
        ones = (1 << size) - 1
        field = 1 | offset << 6 | (size - 1) << 11
        _, out = Wave(mode=mode).scalar(name, value, simm=field)
        assert out.mode == mode & ~(ones << offset) | (value & ones) << offset
        read, _ = Wave(mode=out.mode).scalar("s_getreg_b32", simm=field)
        assert read == value & ones


def test_registers_other_than_mode_are_refused() -> None:
    for body in (
        "s_getreg_b32 s8, hwreg(HW_REG_HW_ID)",
        "s_mov_b32 s8, 0\n s_setreg_b32 hwreg(HW_REG_TRAPSTS), s8",
    ):
        report = run(body, None, np.zeros(64, np.uint32))
        assert checks(report) == {"unsupported-instruction"}
        assert "only MODE (1) is emulated" in report.findings[0].message


NOTHING = """
  v_nop
  s_nop 3
  s_sleep 1
  s_setprio 2
  s_sethalt 0
  s_setkill 0
  s_sendmsg sendmsg(MSG_INTERRUPT)
  s_sendmsghalt sendmsg(MSG_INTERRUPT)
  s_wakeup
  s_icache_inv
  s_dcache_inv
  s_incperflevel 1
  s_decperflevel 1
  s_ttracedata
  buffer_inv sc1
  buffer_wbl2 sc1
"""
"""Messages to the driver, caches, priorities and counters, which change no register and no byte."""


def test_what_does_nothing() -> None:
    body = f"""
      global_load_dword v3, v1, s[4:5]
      s_mov_b32 m0, 0
      s_mov_b32 s8, 5
      s_cmp_eq_u32 s8, 5
      s_mov_b64 vcc, 3
      s_waitcnt vmcnt(0)
      {NOTHING}
      s_cselect_b32 s9, 100, 0
      s_add_u32 s9, s9, s8
      s_add_u32 s9, s9, vcc_lo
      v_add_u32 v2, s9, v3
      global_store_dword v1, v2, s[6:7]"""
    np.testing.assert_array_equal(result(body, LANES.copy()), LANES + 108)


@pytest.mark.parametrize("name", ["s_memtime", "s_memrealtime"])
def test_clocks_go_forward(name: str) -> None:
    """A clock goes forward, by as much in every run: programs that read one stay reproducible."""
    body = f"""
      {name} s[8:9]
      s_nop 0
      {name} s[10:11]
      s_waitcnt lgkmcnt(0)
      s_sub_u32 s8, s10, s8
      s_subb_u32 s9, s11, s9
      v_mov_b32 v2, s8
      v_mov_b32 v3, s9
      v_lshlrev_b32 v1, 3, v0
      global_store_dwordx2 v1, v[2:3], s[6:7]"""
    times = [result(body, dwords=128, launch={"seed": seed}).view(np.uint64) for seed in range(3)]
    assert (times[0] > 0).all()
    assert (times[0] < 1000).all()
    assert all(np.array_equal(each, times[0]) for each in times)


@pytest.mark.parametrize("dwords", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kind", ["address", "buffer"])
def test_scalar_loads(kind: str, dwords: int) -> None:
    """The address may have an offset in the instruction or in an SGPR; no neighbour is loaded."""
    data = np.random.default_rng(dwords).integers(1, 1 << 32, 64, dtype=np.uint32)
    target = "s32" if dwords == 1 else f"s[32:{31 + dwords}]"
    suffix = "dword" if dwords == 1 else f"dwordx{dwords}"
    load = f"s_load_{suffix} {target}, s[4:5]"
    if kind == "buffer":
        load = f"s_buffer_load_{suffix} {target}, s[8:11]"
    for offset, first in (("0x0", 0), ("0x14", 5), ("s12", 9)):
        # a 7 behind them
        stores = "".join(
            f"v_mov_b32 v2, s{32 + i}\n global_store_dword v3, v2, s[6:7] offset:{4 * i}\n"
            for i in range(dwords + 1)
        )
        body = f"""
          {raw_buffer(data.nbytes)}
          s_mov_b32 s12, 36
          s_mov_b32 s{32 + dwords}, 7
          {load}, {offset}
          s_waitcnt lgkmcnt(0)
          v_mov_b32 v3, 0
          {stores}"""
        got = result(body, data)[: dwords + 1]
        np.testing.assert_array_equal(got, [*data[first : first + dwords], 7])


@pytest.mark.parametrize(("suffix", "dwords"), [("dword", 1), ("dwordx3", 3), ("dwordx4", 4)])
def test_copies_from_global_memory_to_lds(suffix: str, dwords: int) -> None:
    """A lane's bytes follow those of the lane before it, from M0 plus the offset on."""
    data = np.random.default_rng(1).integers(0, 1 << 32, 64 * dwords + 4, dtype=np.uint32)
    reads = "".join(f"ds_read_b32 v{8 + i}, v4 offset:{80 + 4 * i}\n" for i in range(dwords))
    stores = "".join(
        f"global_store_dword v4, v{8 + i}, s[6:7] offset:{4 * i}\n" for i in range(dwords)
    )
    body = f"""
      s_mov_b32 m0, 64
      v_sub_u32 v3, 63, v0
      v_mul_u32_u24 v3, {4 * dwords}, v3
      global_load_lds_{suffix} v3, s[4:5] offset:16
      s_waitcnt vmcnt(0)
      v_mul_u32_u24 v4, {4 * dwords}, v0
      {reads}
      s_waitcnt lgkmcnt(0)
      {stores}"""
    got = result(body, data, 64 * dwords, lds=2048).reshape(64, dwords)
    np.testing.assert_array_equal(got, data[4:].reshape(64, dwords)[63 - LANES])


@pytest.mark.parametrize("suffix", ["ubyte", "sbyte", "ushort", "sshort"])
def test_copies_of_less_than_a_dword_are_refused(suffix: str) -> None:
    body = f"s_mov_b32 m0, 0\n s_nop 0\n global_load_lds_{suffix} v1, s[6:7]\n s_waitcnt vmcnt(0)"
    report = run(body, None, np.zeros(64, np.uint32), lds=256)
    assert checks(report) == {"unsupported-instruction"}
    assert "less than a dword" in report.findings[0].message
