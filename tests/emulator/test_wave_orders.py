"""Orders of waves: a race on LDS is found in every one, also in those that give the right result.

A wave is slow if it counts to some thousands at its begin and after each barrier, so that all
others come first.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest

from hk_backend import _emulator
from tests.emulator import twins
from tests.emulator.assembly import PROLOGUE, Program, run, together
from tests.emulator.twins import OF_ASSEMBLY, Twins

BEGIN = """
  v_readfirstlane_b32 s80, v0
  s_lshr_b32 s80, s80, 6                   ; the wave
  s_load_dword s81, s[4:5], 0x400          ; a bit for each wave, set if it is slow
  s_waitcnt lgkmcnt(0)
"""
DELAY = """
  s_lshr_b32 s82, s81, s80
  s_and_b32 s82, s82, 1
  s_mulk_i32 s82, 2400
  again{0}:
  s_sub_u32 s82, s82, 1
  s_cmp_gt_i32 s82, 0
  s_cbranch_scc1 again{0}
"""
"""Delay of a slow wave: 7200 instructions, where a turn of a wave has 1024 at most."""
SEEDS = range(2)
LATE = "a copy that is waited for after the barrier at which the other wave takes it for granted"
READER, COPIER = 1, 0


@functools.cache
def delayed(body: str) -> str:
    """The program, with a delay of slow waves at its begin and after each barrier."""
    number = itertools.count()
    code = re.sub("s_barrier", lambda _: "s_barrier" + DELAY.format(next(number)), body)
    return BEGIN + DELAY.format("_begin") + code


RACES = [t for t in twins.ALL if t.check == "lds-race" and t.options.get("block", 64) > 64]


def options(one: Twins) -> dict[str, Any]:
    return {name: value for name, value in one.options.items() if name in OF_ASSEMBLY}


together(
    Program(PROLOGUE + delayed(body), **options(one))
    for one in RACES
    for body in (one.good, one.broken)
)


def launch(one: Twins, body: str, slow: int, seed: int) -> tuple[_emulator.Report, np.ndarray]:
    """The report, and what was stored. `slow` has a bit for each wave."""
    data, out = np.ones(257, np.uint32), np.full(256, 7, np.uint32)
    data[256] = slow
    launched: dict[str, Any] = {**one.options, "launch": {"seed": seed}}
    return run(delayed(body), data, out, **launched), out


@pytest.mark.parametrize("one", RACES, ids=lambda one: one.name)
def test_a_race_is_found_whichever_waves_come_first(one: Twins) -> None:
    """The correct program is clean and stores the same in every order.

    Its twin has the finding in every order, and where a writer comes late, reads bytes that nobody
    wrote.
    """
    waves = one.options["block"] // 64
    results = set()
    for slow, seed in itertools.product(range(2**waves - 1), SEEDS):
        report, out = launch(one, one.good, slow, seed)
        assert not report.findings, (slow, [f.message for f in report.findings])
        results.add(out.tobytes())
        report, _ = launch(one, one.broken, slow, seed)
        found = [f for f in report.findings if f.check == one.check]
        assert {f.check for f in report.findings} <= {one.check, "lds-unwritten"}
        assert any(
            f.instruction.startswith(one.instruction) and f.other_instruction.startswith(one.other)
            for f in found
        )
    assert len(results) == 1


def test_it_is_found_where_the_result_is_right_by_luck() -> None:
    """The copy is back if the reader is slow, and the old bytes are there if the copier is."""
    (late,) = (one for one in RACES if one.name == LATE)
    for seed in range(8):
        for slow, value in ((READER, 1), (COPIER, 0)):
            report, out = launch(late, late.broken, 1 << slow, seed)
            assert (out[:64] == value).all()
            assert {f.check for f in report.findings} == {"lds-race"}
