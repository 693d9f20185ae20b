"""Bars for the shipped kernels, on their code and on emulated runs.

The catalogue's figures are those of the shipped code: test_build.py builds it again and compares.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.kernels import Fact, KernelEntry, arches, catalogue
from hk_backend.kernels.masks import GROUPED
from hk_backend.lab.timing.workloads.attention_prefill import launch, small
from hk_backend.lab.toolchain import analysis, clocks
from hk_backend.lab.toolchain.compiler import Toolchain
from hk_backend.lab.toolchain.disassembly import Disassembly, parse
from hk_backend.lab.toolchain.elf import Elf
from tests.kernels.attention_launch import Case, Launch, kernels
from tests.kernels.cover import covered, of_some_kinds
from tests.proof.kernel_digest import instructions

KERNELS = [entry for arch in arches() for entry in catalogue(arch).kernels]
ATTENTION = [entry for entry in KERNELS if entry.operator == "attention_prefill"]
QUANTIZE = [entry for entry in KERNELS if entry.operator.startswith("quantize_")]
WAVE_ROWS = 32  # columns of a matrix instruction
FLOPS_PER_CLOCK = 1024  # 16-bit matrix instructions on a SIMD of gfx950
MOST_WAVES = 8  # on a SIMD
SLACK = 0.02  # share of the useful matrix FLOPs
LEAST: dict[tuple[Fact, Fact], int] = {
    **{(mask, 64): 47 for mask in ("none", "window", "part")},
    ("capped", 64): 35,
    ("alibi", 64): 41,
}
"""Least useful percent, by mask and head size, of kernels with more vector than matrix work.

Two single float32 instructions replace a packed one, whose wait for the matrix unit no issue slot
shows."""
Lengths = tuple[tuple[int, int], ...]
"""Queries and keys of each request."""

GEMM = [entry for entry in KERNELS if entry.operator == "gemm"]
gemm = pytest.mark.parametrize("entry", of_some_kinds("bars", 10, {e.name: [e] for e in GEMM}))
"""Kernels drawn by the commit: tests/lab/toolchain/test_shipped.py compares figures, too."""


@functools.cache
def code(entry: KernelEntry) -> Disassembly:
    """The kernel's control flow; `pc` counts bytes in the .text section.

    The emulator prints what LLVM would (tests/emulator/test_decode.py), and only this kernel.
    """
    elf = Elf(entry.code_object())
    start = elf.symbols()[entry.symbol][0] - elf.sections[".text"].address
    listed = _emulator.disassemble(elf.symbol_bytes(entry.symbol), entry.arch)
    split = ((start + pc, *text.partition(" ")) for pc, text in listed)
    return Disassembly(tuple(parse(name, operands, pc) for pc, name, _, operands in split))


def wave_keys(entry: KernelEntry) -> int:
    """Keys of each tile that one wave computes: a part of them if several waves have the same
    rows."""
    return entry.tile.columns * entry.tile.rows * clocks.WAVE // (WAVE_ROWS * entry.block)


def below(entries: list[KernelEntry], bar: Callable[[KernelEntry], bool]) -> list[str]:
    """The names of the kernels that do not reach the bar."""
    assert entries
    return [entry.name for entry in entries if not bar(entry)]


def test_no_spills_no_scratch_no_waterfalls() -> None:
    def has_none(entry: KernelEntry) -> bool:
        return entry.spills == entry.scratch == entry.figures.waterfall_loops == 0

    assert below(KERNELS, has_none) == []


def test_waves_on_each_simd() -> None:
    """Registers and LDS admit the number of waves that the kernel states. Memory-bound kernels have
    the most that are possible."""

    def has_its_waves(entry: KernelEntry) -> bool:
        return entry.figures.waves_per_simd == entry.bars["waves_per_simd"] >= 1

    assert below(KERNELS, has_its_waves) == []
    assert below(QUANTIZE, lambda entry: entry.bars["waves_per_simd"] == MOST_WAVES) == []


@gemm
def test_useful_share_of_gemm_s_steady_loop(entry: KernelEntry, tools: Toolchain) -> None:
    """Every matrix instruction is useful; those of FP8 count by their own rate."""
    found = analysis.steady_loop(code(entry), entry.step_flops)
    assert found is not None
    assert sum(map(clocks.matrix_flops, found.loop.always)) == found.steps * entry.step_flops
    matrix = sum(clocks.matrix_clocks(i) for i in found.loop.always if clocks.is_matrix(i))
    share = matrix / analysis.loop_clocks(found.loop, entry.arch, tools)
    assert entry.figures.useful_mfma_share == pytest.approx(share, abs=1e-4)
    assert entry.bars["useful_percent"] / 100 <= share < 1


def test_gemm_s_recorded_shares_reach_their_bars() -> None:
    """The test above derives the share anew, for a few kernels alone."""

    def reaches(entry: KernelEntry) -> bool:
        return 100 * entry.figures.useful_mfma_share >= entry.bars["useful_percent"]

    assert below(GEMM, reaches) == []


def test_the_steady_loop_never_waits_for_every_copy() -> None:
    assert below(ATTENTION, lambda entry: entry.figures.vmcnt0_in_loop == 0) == []


def test_useful_share_of_the_steady_loop() -> None:
    """Each kernel's source states the share that it must reach."""

    def useful_flops(entry: KernelEntry) -> int:
        return 4 * WAVE_ROWS * wave_keys(entry) * entry.tile.depth

    def is_useful(entry: KernelEntry) -> bool:
        share, bar = 100 * entry.figures.useful_mfma_share, entry.bars["useful_percent"]
        least = LEAST.get((entry.facts["mask"], entry.facts["head_size"]), 50)
        return share >= bar >= least

    assert below(ATTENTION, lambda entry: entry.step_flops == useful_flops(entry)) == []
    assert below(ATTENTION, is_useful) == []


SHARING = [
    entry
    for entry in ATTENTION
    if entry.bars["waves_per_simd"] > 1 and entry.facts["mask"] not in ("capped", "alibi")
]
"""Kernels whose waves share a SIMD, with scores as they are."""


@pytest.mark.parametrize("entry", of_some_kinds("packed", 10, {e.name: [e] for e in SHARING}))
def test_no_packed_float32_instruction_waits_in_the_steady_loop(entry: KernelEntry) -> None:
    """Such an instruction waits until the SIMD's matrix unit is idle (docs/timing.md)."""
    found = analysis.steady_loop(code(entry), entry.step_flops)
    assert found is not None
    names = [instruction.mnemonic for instruction in found.loop.always]
    assert any(name.startswith("v_mfma") for name in names)
    assert [name for name in names if re.match(r"v_pk_\w+_f32", name)] == []


@kernels()
def test_the_useful_share_is_that_of_the_code(entry: KernelEntry, tools: Toolchain) -> None:
    """Useful work is 4 x rows x keys x d of the wave's own; llvm-mca gives the loop's clocks."""
    found = analysis.steady_loop(code(entry), entry.step_flops)
    assert found is not None
    clocks_of_loop = analysis.loop_clocks(found.loop, entry.arch, tools)
    share = found.steps * entry.step_flops / FLOPS_PER_CLOCK / clocks_of_loop
    assert entry.figures.useful_mfma_share == pytest.approx(share, abs=1e-4)


@kernels()
def test_a_long_run_is_in_the_steady_loop(entry: KernelEntry) -> None:
    """The other tests judge one loop: here that loop does the work of a long run."""
    keys = 2048
    report = launch(entry, small(entry, keys)).run()
    found = analysis.steady_loop(code(entry), entry.step_flops)
    assert found is not None
    executed = report.counters.executed
    inside = sum(executed.get(i.pc, 0) * clocks.matrix_flops(i) for i in found.loop.always)
    steps = keys // entry.tile.columns
    assert inside / report.counters.matrix_flops >= 1 - 2 / steps  # all but the first and the last


@kernels()
def test_no_bank_conflicts_in_the_steady_loop(entry: KernelEntry) -> None:
    """Over a run of many steps, each access with published phases takes as many phases as it
    needs."""
    report = launch(entry, small(entry)).run()
    assert not report.findings
    found = analysis.steady_loop(code(entry), entry.step_flops)
    assert found is not None
    phases = report.counters.lds_phases
    counted = [i for i in found.loop.always if i.pc in phases]
    assert {i.mnemonic for i in counted} == {"ds_read_b128"}  # of the keys
    assert [i.text for i in counted if phases[i.pc][0] != phases[i.pc][1]] == []
    assert min(phases[i.pc][1] for i in counted) > 0
    assert entry.figures.bank_conflict_factor == 1


def matrix_flops(entry: KernelEntry, case: Case) -> tuple[int, int, int]:
    """FLOPs of a case: useful ones; those of hidden pairs in tiles that the diagonal crosses; and
    those past the last row or key of a tile.

    A tile is what a wave computes at once: its rows by its keys of a step. It is needed if one
    of its rows sees one of its keys. Rows are of one head, or of a KV head's, token by token.
    """
    rows, columns = WAVE_ROWS, wave_keys(entry)
    group = case.num_heads // case.num_kv_heads if entry.facts["mask"] in GROUPED else 1
    useful = hidden = tails = 0
    for queries, keys in case.lengths:
        of_heads = queries * group
        row, column = np.ogrid[: -(-of_heads // rows) * rows, : -(-keys // columns) * columns]
        exists = (row < of_heads) & (column < keys)
        sees = exists & (column <= row // group + keys - queries) if case.causal else exists
        tiles = sees.reshape(row.size // rows, rows, column.size // columns, columns)
        needed = np.broadcast_to(tiles.any(axis=(1, 3), keepdims=True), tiles.shape)
        needed = needed.reshape(exists.shape)
        useful += int(sees.sum())
        hidden += int((needed & exists & ~sees).sum())
        tails += int((needed & ~exists).sum())
    # two products, a multiplication and an addition
    each = 4 * entry.tile.depth * (case.num_heads // group)
    return each * useful, each * hidden, each * tails


def executed_flops(entry: KernelEntry, case: Case) -> int:
    """The FLOPs of a run, counted by how often each matrix instruction of the disassembly
    executed."""
    outcome = Launch(entry, case).run(entry.code_object())
    assert not outcome.findings
    executed = outcome.report.counters.executed
    flops = sum(executed.get(i.pc, 0) * clocks.matrix_flops(i) for i in code(entry).instructions)
    assert flops == outcome.report.counters.matrix_flops
    return flops


@covered(
    "attention_prefill",
    dtype=("bf16",),
    causal=(True, False),
    lengths=(((512, 512),), ((256, 1024),), ((512, 448), (64, 704), (128, 64))),
)
def test_matrix_work_is_the_useful_and_the_diagonal_s(
    entry: KernelEntry, causal: bool, lengths: Lengths
) -> None:
    """All lengths are whole tiles. The third batch has rows that see nothing; in one of its
    requests they fill a tile."""
    case = Case(lengths, causal=causal)
    useful, hidden, tails = matrix_flops(entry, case)
    assert (hidden > 0, tails) == (causal, 0)
    assert abs(executed_flops(entry, case) - useful - hidden) <= SLACK * useful


@covered(
    "attention_prefill",
    dtype=("bf16",),
    causal=(True, False),
    lengths=(
        ((1, 1), (33, 65)),
        ((255, 255), (1, 300), (257, 319)),
        ((31, 500), (0, 50), (64, 127)),
    ),
)
def test_no_tile_is_computed_in_vain(entry: KernelEntry, causal: bool, lengths: Lengths) -> None:
    """Counts are exact and include tails, at lengths where one extra tile makes a visible
    difference."""
    case = Case(lengths, causal=causal)
    assert executed_flops(entry, case) == sum(matrix_flops(entry, case))


def test_no_packed_float_takes_a_high_half_for_its_low_one() -> None:
    """gfx950 is reported to lose sums of `v_pk_fma_f32` in that form (ROCm/rocMLIR#2459).

    Kernels for float16 have the instructions of those for bfloat16 (`test_in_fp16_it_is_the_same`).
    """

    def takes_none(entry: KernelEntry) -> bool:
        packed = [text for text in instructions(entry) if text.startswith("v_pk_fma_f32")]
        return not any(" op_sel:[" in text for text in packed)

    others = [entry for entry in KERNELS if "f16" not in entry.facts.values()]
    assert below(others, takes_none) == []
