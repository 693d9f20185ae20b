"""Thread traces of our own making: folders as AMD's decoder writes them, of a small program.

The clocks are the model's own, with parameters of the test's choice. So a replay with the same
parameters has no error, and the extraction must find them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hk_backend import _emulator
from hk_backend.lab.timing.hardware.assembly import kernel_of
from hk_backend.lab.timing.hardware.dispatch import STEP, Dispatch, Line, Wave
from hk_backend.lab.timing.hardware.replay import Beside, replay
from hk_backend.lab.toolchain import compiler
from hk_backend.lab.toolchain.elf import Elf
from tests.emulator.assembly import assemble

ARCH = "gfx950"
BASE = 5888
"""Address of the kernel in its file."""
TURNS = 12
PROGRAM = """
  s_load_dword s4, s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s5, 12
loop:
  buffer_load_dwordx4 v[20:23], v10, s[8:11], 0 offen
  v_exp_f32_e32 v1, v1
  v_add_f32_e32 v2, v1, v1
  ds_write_b128 v10, v[20:23]
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b128 v[4:7], v10
  s_waitcnt lgkmcnt(0)
  v_readfirstlane_b32 s6, v1
  s_add_u32 s7, s6, 1
  v_mfma_f32_32x32x16_bf16 v[32:47], v[4:7], v[4:7], v[32:47]
  v_add_f32_e32 v8, v9, v9
  v_pk_mul_f32 v[12:13], v[12:13], v[12:13]
  v_mfma_scale_f32_16x16x128_f8f6f4 v[48:51], v[52:59], v[52:59], v[48:51], v60, v61
  s_waitcnt vmcnt(0)
  v_mov_b32_e32 v3, v20
  s_sub_u32 s5, s5, 1
  s_cmp_lg_u32 s5, 0
  s_cbranch_scc1 loop
  buffer_store_dwordx4 v[20:23], v10, s[8:11], 0 offen
"""
MEASURED = {
    "lds_latency": 60.0,
    "lds_write_issue": 4.0,
    "branch_taken": 24.0,
    "scalar_latency": 80.0,
    "after_matrix": 12.0,
    "memory_after_vector": 16.0,
    "scalar_after_vector": 24.0,
    "branch_after_scalar": 12.0,
    "packed_after_matrix": 20.0,
}
"""Parameters of the made trace, unlike the model's own."""
WARM = {"scalar_cold": 0.0, "l2_latency": 300.0, "l2_hits": 1.0, "l2_miss_run": 1.0}
"""The caches have the made launch's arguments and operands, and the loop waits for the L2 most."""
WAITS = ("s_waitcnt", "s_barrier")
"""Instructions whose clocks are all stall."""
FIRST = 1000
"""Clock at which the first wave begins."""


def listing() -> list[list[Any]]:
    """The program as the rows of `code.json`, a label first."""
    assembled = Elf(assemble(PROGRAM)).symbol_bytes("k")
    placed = _emulator.disassemble(assembled, ARCH)
    rows = [["; k", 0, 0, "", 4, BASE, 0, 0, 0, 0]]
    for number, (pc, text) in enumerate(placed, 1):
        rows.append([text, 0, number, f"made.py:{number}", 4, BASE + pc, 0, 0, 0, 0])
    return rows


def made(folder: Path, changes: Mapping[str, float]) -> Path:
    """Write a dispatch of one workgroup of four waves, with the clocks of these parameters."""
    rows = listing()
    lines = [Line(row[0], row[5], row[3]) for row in rows]
    issued = _lines_issued([line.text for line in lines])
    begins = [Wave(0, simd, 0, FIRST + 4 * simd, 0, _unclocked(issued, FIRST + 4 * simd))
              for simd in range(4)]  # fmt: skip
    dispatch = Dispatch("made", lines, begins, 2.0)
    parameters = _emulator.TimingParameters(ARCH, {**WARM, **changes})
    besides = list(replay(dispatch, kernel_of(lines, ARCH, compiler.find()), parameters))
    folder.mkdir()
    (folder / "code.json").write_text(json.dumps({"code": rows, "version": "made"}))
    clocks = {"SE0": [[0, 0], [2000, 100]], "metadata": {"frequency": 100_000_000}}
    (folder / "realtime.json").write_text(json.dumps(clocks))
    for beside in besides:
        _write(folder, beside, lines, changes)
    return folder


def _lines_issued(texts: Sequence[str]) -> list[int]:
    """The lines that each wave issues, from the first to s_endpgm."""
    names = [text.split()[0] for text in texts]
    first, last = names.index("buffer_load_dwordx4"), names.index("s_cbranch_scc1")
    return [
        *range(1, first),
        *(line for _ in range(TURNS) for line in range(first, last + 1)),
        *range(last + 1, len(texts)),
    ]


def _unclocked(issued: Sequence[int], begin: int) -> NDArray[Any]:
    steps = np.zeros(len(issued), STEP)
    steps["line"], steps["clock"][0] = issued, begin
    return steps


def _write(
    folder: Path, beside: Beside, lines: Sequence[Line], changes: Mapping[str, float]
) -> None:
    """Write one wave: each instruction begins when its predecessor lets the wave go on."""
    begin = beside.wave.begin
    clock, rows = begin, []
    for issue, number in zip(beside.model + begin, beside.wave.steps["line"], strict=True):
        name = lines[number].mnemonic
        issues = 0 if name in WAITS else 4
        if name == "ds_write_b128":
            issues += int(4 * changes["lds_write_issue"])
        rows.append([clock, 0, int(issue) - clock, int(issue) - clock + issues, int(number)])
        clock = int(issue) + issues
        if name == "s_cbranch_scc1":
            clock = int(issue) + int(changes["branch_taken"])
    wave = {"begin": begin, "end": clock, "simd": beside.wave.simd, "slot": 0, "cu": 1, "id": 0}
    content = {"wave": {**wave, "instructions": rows}}
    name = f"se0_sm{beside.wave.simd}_sl0_wv0.json"
    (folder / name).write_text(json.dumps(content))
