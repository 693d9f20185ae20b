"""How many wait states the emulator demands between two instructions, against LLVM's hazard
recognizer: one fewer is a finding, as many are none."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hk_backend import _emulator
from tests.emulator.assembly import assemble, run, text_of
from tests.emulator.hazard_recognizer import wait_states

# Everything is written and zero, which is also a valid LDS address; v[4:5] is the output.
SETUP = (
    """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_mov_b64 vcc, 0
  s_mov_b32 m0, 0
  s_cmp_eq_u32 0, 0
"""
    + "".join(
        [f"v_mov_b32 v{i}, 0\n" for i in range(1, 256)]
        + [f"v_accvgpr_write_b32 a{i}, 0\n" for i in range(64)]
        + [f"s_mov_b32 s{i}, 0\n" for i in range(12, 40)]
    )
    + """
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s8, s6
  s_mov_b32 s9, s7
  s_movk_i32 s10, 0x1000
  s_mov_b32 s11, 0x20000
  v_mov_b32 v4, s6
  v_mov_b32 v5, s7
  ds_write_b64 v1, v[2:3]
"""
)

# Between two pairs: far apart, nothing in flight, all lanes on, what a pair changes as before.
REST = """
  s_nop 15
  s_nop 15
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_mov_b64 exec, -1
  s_mov_b32 m0, 0
  s_mov_b32 s20, 0
  s_mov_b32 s21, 0
  v_mov_b32 v4, s6
  v_mov_b32 v5, s7
  s_nop 7
"""

Pair = tuple[str, str]

HAZARDS = ("hazard", "matrix-hazard")


def demands(pairs: Iterable[tuple[str, str, int]], arch: str) -> list[bool]:
    """Whether the emulator reports a hazard, for each (first, second, wait states between them)."""
    body, marks = SETUP, []
    for i, (first, second, states) in enumerate(pairs):
        nops = [f"s_nop {min(states - at, 16) - 1}" for at in range(0, states, 16)]
        # the pair is told from others by a literal before it
        body += "\n".join([REST, f"s_mov_b32 s22, 0x{0x10000 + i:x}", first, *nops, second, ""])
        marks.append(f"0x{0x10000 + i:x}")
    out = np.zeros(4096, np.uint32)
    report = run(
        body, None, out, prologue="", arch=arch, lds=4096, vgprs=320,
        launch={"max_findings": 10**6, "max_instructions": 10**6},
    )  # fmt: skip
    # addresses in SGPRs are null: that is found, too, and does not stop the program
    other = {f.message for f in report.findings if f.check not in (*HAZARDS, "out-of-bounds")}
    assert not other
    found = sorted(f.pc for f in report.findings if f.check in HAZARDS)
    assert report.counters.by_class["end"] == 1
    return _between_marks(body, arch, marks, found)


def _between_marks(body: str, arch: str, marks: list[str], found: list[int]) -> list[bool]:
    code = assemble(body, arch=arch, lds=4096, vgprs=320)
    starts = [
        pc for pc, text in _emulator.disassemble(text_of(code), arch)
        if text.startswith("s_mov_b32 s22, 0x1")
    ]  # fmt: skip
    assert len(starts) == len(marks)
    ends = [*starts[1:], 2**62]
    return [any(start <= pc < end for pc in found) for start, end in zip(starts, ends, strict=True)]


def compare(pairs: list[Pair], arch: str) -> dict[int, int]:
    """How many pairs need how many wait states."""
    needed = wait_states(pairs, arch)
    enough = [(a, b, n) for (a, b), n in zip(pairs, needed, strict=True)]
    fewer = [(a, b, n - 1) for a, b, n in enough if n > 0]
    reported = demands(enough, arch)
    too_strict = [case for case, found in zip(enough, reported, strict=True) if found]
    reported = demands(fewer, arch)
    too_lax = [case for case, found in zip(fewer, reported, strict=True) if not found]
    assert not too_lax, (len(too_lax), too_lax[:12])
    assert not too_strict, (len(too_strict), too_strict[:12])
    return {n: needed.count(n) for n in set(needed)}
