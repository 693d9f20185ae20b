"""Every row of the table of parameters decides something."""

from __future__ import annotations

import functools
import struct

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.timing import model
from hk_backend.timing.launch import Launch, Traced, trace
from hk_backend.timing.workloads.buffers import zeros
from tests.emulator.assembly import PROLOGUE, assemble, needs_llvm

pytestmark = needs_llvm

WORDS = 1 << 25

STREAM = """
  v_add_u32 v2, 0x1000, v2
  global_load_dwordx4 v[32:35], v2, s[4:5]
"""
# Every unit, each kind of instruction often enough that it is the bottleneck for a while.
BODY = (
    """
  s_lshl_b32 s8, s2, 14
  v_add_u32 v1, s8, v1
  v_lshlrev_b32 v2, 2, v1
  v_lshlrev_b32 v3, 4, v0
"""
    + "".join(f"v_mov_b32 v{i}, 0\n" for i in range(4, 64))
    + """
  s_mov_b32 s9, 3
1:
  s_sub_u32 s9, s9, 1
  s_cmp_lg_u32 s9, 0
  s_cbranch_scc1 1b
"""
    + f"""
  {"v_fma_f32 v4, v5, v6, v4" + chr(10) + "v_exp_f32 v7, v7" + chr(10)}
  {"v_mul_lo_u32 v8, v8, v9" + chr(10) + "v_swap_b32 v10, v11" + chr(10)}
  {"v_mfma_f32_16x16x32_bf16 v[12:15], v[16:19], v[20:23], v[12:15]" + chr(10)}
  v_fma_f32 v24, v25, v26, v24
  {"v_mfma_f32_16x16x32_bf16 v[12:15], v[16:19], v[20:23], v[12:15]" + chr(10)}
  v_mfma_f32_16x16x32_bf16 v[28:31], v[12:15], v[20:23], 0
  {("ds_write_b128 v3, v[32:35]" + chr(10)) * 12}
  s_waitcnt lgkmcnt(0)
  {("ds_read_b128 v[32:35], v3" + chr(10)) * 12}
  s_waitcnt lgkmcnt(0)
  {("ds_read_b64 v[36:37], v3" + chr(10)) * 12}
  s_waitcnt lgkmcnt(0)
  {("ds_read_b32 v38, v3" + chr(10)) * 12}
  s_waitcnt lgkmcnt(0)
  {("ds_read_b64_tr_b16 v[40:41], v3" + chr(10)) * 12}
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_load_dword s10, s[4:5], 0x0
  s_waitcnt lgkmcnt(0)
  {"".join(f"global_load_dwordx4 v[32:35], v2, s[4:5] offset:{o}{chr(10)}" for o in (0, 1024))}
  s_waitcnt vmcnt(0)
  {("global_load_dwordx4 v[32:35], v2, s[4:5]" + chr(10)) * 40}
  s_waitcnt vmcnt(0)
  {STREAM * 14}
  s_waitcnt vmcnt(0)
  global_load_dword v36, v0, s[4:5]
  s_waitcnt vmcnt(0)
  {("global_store_dwordx4 v2, v[32:35], s[6:7] offset:2048" + chr(10)) * 4}
  s_mov_b32 m0, 0
  {("global_load_lds_dwordx4 v2, s[4:5] offset:3072" + chr(10)) * 8}
  ds_read_b32 v38, v3
  s_waitcnt vmcnt(0) lgkmcnt(0)
  ds_read_b32 v38, v3
  s_waitcnt lgkmcnt(0)
"""
)


@functools.cache
def everything() -> Traced:
    """Two rounds of workgroups, several on a CU."""
    kernel = _emulator.CodeObject.load(
        assemble(PROLOGUE + BODY, lds=32768, vgprs=128, accum_offset=128)
    ).kernel("k")
    machine = _emulator.Machine("gfx950")
    data = zeros((WORDS,), np.uint32)
    at = [machine.map(data.ctypes.data, data.nbytes, name) for name in ("in", "out")]
    grid = 300 * 4
    work = 1.0 + (np.arange(grid) >= grid // 2)
    samples = [0, 1, grid - 1]
    arguments = struct.pack("<2Q", *at)
    launch = Launch(machine, kernel, [grid], 256, arguments, 0, work, samples, keep_alive=data)
    return trace(launch)


HIGHER_IS_FASTER = {
    "compute_units", "clock", "clock_idle", "clock_loaded", "lds_read_b128", "lds_read_b64",
    "lds_read_b32", "lds_read_transposed", "lds_write", "lds_copy", "lds_queue", "vector_memory",
    "vector_memory_queue", "l2", "compute_unit_fabric", "infinity_cache", "hbm", "hbm_burst",
}  # fmt: skip
WHAT_FITS = {"waves_per_simd", "registers", "lds_size"}


@pytest.mark.parametrize("row", _emulator.timing_parameters("gfx950"), ids=lambda row: row[0])
def test_a_parameter_decides_something(row: tuple) -> None:  # type: ignore[type-arg]
    """Which way is asked of programs with one wave (test_laws): among several waves, who is served
    first changes too."""
    name, value, unit = row[0], row[1], row[5]
    worse = value / 8 if name in HIGHER_IS_FASTER else value * 8 + 8
    if name in WHAT_FITS:
        worse = value / 4
    if unit == "of fetches":
        worse = 0
    before, after = model.time(everything()), model.time(everything(), {name: worse})
    figures = [(m.microseconds, m.stream_microseconds, m.resident) for m in (before, after)]
    assert figures[0] != figures[1]
