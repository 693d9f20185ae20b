"""Races of shipped kernels whose waits follow their barriers, or that lack a barrier at the begin.

AMD documents that its race checker misses such races (docs/emulator.md). A moved wait that nobody
notices is one that only the wave itself needs, and is listed here; else the emulator or the cases
have a hole.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, catalogue, masks
from tests.emulator.assembly import assemble, text_of
from tests.kernels import mutants
from tests.kernels.attention_launch import Launch
from tests.kernels.cover import proved
from tests.kernels.gemm_launch import launch
from tests.kernels.gemm_problem import random_problem
from tests.kernels.late_waits import late_waits
from tests.kernels.mutants import NOP, Mutant, code_of, judge, survivors
from tests.kernels.test_gemm_mutants import KERNELS, caught, entry_with
from tests.kernels.test_mutants import IN_BF16

STRICTER = {
    # The copies in flight are those past the last step. Those to the first place of the ring are
    # back, since the compiler waits for weights that came after them; the waves' sums fill that
    # place alone.
    "gemm_fp8_bf16_deep_64x64": ("s_waitcnt vmcnt(0) after its barrier",),
}
"""Mutants that survive, by kernel: only the wave itself needs these waits."""
SEEDS = range(6)


@proved(list(KERNELS.values()))
def test_no_wait_of_a_gemm_may_follow_its_barrier(entry: KernelEntry, tmp_path: Path) -> None:
    words, text, begin, end = code_of(entry)
    alive, count = [], 0
    for mutant in late_waits(words, entry.arch, begin, end):
        count += 1
        code = mutant.apply(entry.code_object(), text)
        if not caught(entry.name.removeprefix("gemm_"), entry_with(entry, code, tmp_path / "late")):
            alive.append(mutant.change)
    assert tuple(alive) == STRICTER.get(entry.name, ())
    assert count >= 3


COPYING = [entry for entry in IN_BF16 if entry.facts["stored"] == entry.facts["dtype"]]
"""Attention kernels that copy keys and values to LDS. From FP8 caches they load to registers, and
some of their waits are for these alone."""


@proved(COPYING, with_types=False)
def test_no_wait_of_an_attention_kernel_may_follow_its_barrier(entry: KernelEntry) -> None:
    windowed = mutants.WINDOWED if entry.facts["mask"] in masks.WINDOWED else ()
    long = mutants.LONG if entry.facts["mask"] == masks.WINDOW_PART else ()
    tried = [Launch(entry, case) for case in (*mutants.CASES, *windowed, *long)]
    code, (words, text, begin, end) = entry.code_object(), code_of(entry)
    found = list(late_waits(words, entry.arch, begin, end))
    verdicts = [judge(tried, mutant.apply(code, text), mutant) for mutant in found]
    assert [str(verdict) for verdict in survivors(verdicts)] == []
    assert verdicts


GEMM = catalogue("gfx950").kernel("gemm_bf16_256x256")
SIZE = (256, 256, 256)


def prologue_barriers(entry: KernelEntry) -> list[int]:
    """The places of the barriers before the first matrix instruction."""
    words, _, begin, end = code_of(entry)
    found = []
    for place, line in _emulator.disassemble(words[begin:end], entry.arch):
        if line.startswith("v_mfma"):
            break
        if line == "s_barrier":
            found.append(begin + place)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gemm_without_a_barrier_of_its_prologue_races(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waves read what the others' copies may not have brought yet, or not even begun to bring."""
    every = functools.partialmethod(_emulator.Machine.launch, max_findings=999)
    monkeypatch.setattr(_emulator.Machine, "launch", every)
    problem = random_problem(GEMM, SIZE, torch.bfloat16)
    product = launch(GEMM, problem, seed=seed)
    assert product.is_right()
    assert not product.report.findings
    places = prologue_barriers(GEMM)
    assert places
    for pc in places:
        mutant = Mutant(pc, ((pc, NOP << 16),), "s_barrier removed")
        code = mutant.apply(GEMM.code_object(), code_of(GEMM)[1])
        report = launch(entry_with(GEMM, code, tmp_path / "mutant.co"), problem, seed=seed).report
        races = [f for f in report.findings if f.check == "lds-race"]
        assert {f.check for f in report.findings} <= {"lds-race", "lds-unwritten"}
        pairs = [sorted((f.instruction, f.other_instruction)) for f in races]
        assert any(a.endswith(" lds") and b.startswith("ds_read_b128") for a, b in pairs)


LOAD = "global_load_dword v2, v1, s[4:5]\n"
WAIT, LAST, BARRIER = "s_waitcnt vmcnt(0)\n", "s_waitcnt vmcnt(1)\n", "s_barrier\n"
BRANCH = "s_cbranch_scc1 on\n"
PIECES = {
    "moves": (f"{LOAD}{WAIT} s_nop 1\n s_nop 2\n{BARRIER}", [0, 2, 3, 4, 1]),
    "begins a path": (f"{LOAD} on: {WAIT}{BARRIER}{BRANCH}", [0, 2, 1, 3]),
    "a path enters": (f"{LOAD}{WAIT} on: {BARRIER}{BRANCH}", None),
    "a path leaves": (f"{LOAD}{WAIT}{BRANCH}{BARRIER} on:", None),
    "another wait": (f"{LOAD}{LOAD}{LAST}{WAIT}{BARRIER}", [0, 1, 2, 4, 3]),
    "never waits": (f"{LOAD}{LAST}{BARRIER}", None),
    "no barrier": (f"{LOAD}{WAIT} s_nop 1", None),
}
"""Pieces of code, with the order of their instructions after the move."""


@pytest.mark.parametrize("name", PIECES)
def test_a_wait_moves_where_its_barrier_always_follows(name: str) -> None:
    body, order = PIECES[name]
    text = text_of(assemble(body))
    listed = [line for _, line in _emulator.disassemble(text, "gfx950")]
    found = [mutant.apply(text, 0) for mutant in late_waits(text, "gfx950", 0, len(text))]
    assert len(found) == (order is not None)
    if order is not None:
        moved = [line for _, line in _emulator.disassemble(found[0], "gfx950")]
        assert moved[: len(order)] == [listed[i] for i in order]
        assert moved[len(order) :] == listed[len(order) :]
