"""Small kernels in files, as an author of any AMD kernel has them."""

from __future__ import annotations

from pathlib import Path

from tests.emulator.assembly import Declared, Program, assemble_all

POINTERS = (Declared("global_buffer", 0, 8, "x"), Declared("global_buffer", 8, 8, "out"))
NUMBERS = (Declared("by_value", 16, 4, "count"), Declared("by_value", 20, 4, "factor"))
FILE = '.file 1 "/kernels" "scale.s"'
BODY = """
  {file}
  .loc 1 10 0
  s_load_dwordx8 s[4:11], s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  .loc 1 11 0
  s_lshl_b32 s12, s2, 6
  v_add_u32 v2, s12, v0
  v_lshlrev_b32 v1, 2, v2
  v_cmp_gt_u32 vcc, s8, v2
  s_and_b64 exec, exec, vcc
  s_cbranch_execz done
  .loc 1 12 0
  global_load_dword v3, v1, s[4:5]
  {wait}
  .loc 1 13 0
  v_mul_f32 v3, s9, v3
  .loc 1 14 0
  global_store_dword v1, v3, s[6:7]
done:"""
MORE = (*NUMBERS, Declared("hidden_block_count_x", 24, 4), Declared("hidden_none", 28, 4))
SCALE = Program(BODY.format(file=FILE, wait="s_waitcnt vmcnt(0)"), first=POINTERS, more=MORE)
"""A kernel for blocks of 64: out[i] = factor * x[i] for i < count."""
UNWAITED = Program(BODY.format(file="", wait="s_nop 0"), first=POINTERS, more=MORE)
"""The same without the wait for its load, for a file that begins with `SCALE`."""


def write(path: Path, *programs: Program, arch: str = "gfx950", dwarf: int = 5) -> Path:
    """Writes a code object; its kernels are k, k1, ..."""
    path.write_bytes(assemble_all(programs, arch, dwarf))
    return path
