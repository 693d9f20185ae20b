"""From traced samples to a figure for the device, and which of several kernels serves a shape."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.kernels.catalogue import NoKernel, catalogue
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.masks import NO_MASK
from hk_backend.timing import model, standard
from hk_backend.timing.launch import Launch, Traced, trace
from hk_backend.timing.workloads import attention
from tests.emulator.assembly import PROLOGUE, assemble, needs_llvm


@functools.cache
def traced(tokens: int = 1024, heads: int = 8, batch: int = 2) -> Traced:
    entry = catalogue("gfx950").select(
        "attention_prefill", dtype="bf16", head_size=64, keys="packed", mask=NO_MASK
    )
    assert isinstance(entry, KernelEntry)
    lengths = [tokens] * batch
    return trace(attention.launch(entry, attention.Shape(lengths, lengths, heads, 1)))


FMA = "v_fma_f32 v2, v3, v4, v2\n"


def vector_launch(work: list[float], waves: int = 4) -> Traced:
    """Every wave does 1000 vector instructions, or 2000 if bit 8 of its workgroup is set."""
    body = f"""
      v_mov_b32 v2, 0
      v_mov_b32 v3, 0
      v_mov_b32 v4, 0
      {FMA * 1000}
      s_bitcmp1_b32 s2, 8
      s_cbranch_scc0 1f
      {FMA * 1000}
      1:
    """
    code = assemble(PROLOGUE + body, vgprs=128, accum_offset=128)
    kernel = _emulator.CodeObject.load(code).kernel("k")
    grid, samples = [len(work)], [0, min(256, len(work) - 1)]
    launch = Launch(
        _emulator.Machine("gfx950"), kernel, grid, 64 * waves, bytes(16), 0, np.array(work), samples
    )
    return trace(launch)


@needs_llvm
@pytest.mark.parametrize("rounds", [1, 8], ids=["every CU replayed", "workgroups of each length"])
def test_workgroups_that_share_a_cu_share_its_units(rounds: int) -> None:
    """One wave of each on a SIMD whose vector unit they fill: together as long as one by one."""
    fit = {"waves_per_simd": 2}
    work = [1.0 + (number >> 8 & 1) for number in range(512 * rounds)]
    modelled = model.time(vector_launch(work), fit)
    assert modelled.resident == 2
    # of a CU: `rounds` workgroups of 4000 clocks and as many of 8000
    assert modelled.clocks == pytest.approx(rounds * 12000, rel=0.15)
    assert modelled.unit_share["vector"] > 0.8


# --- which of several kernels serves a shape ------------------------------------------------------


def kernel() -> KernelEntry:
    return catalogue("gfx950").kernel("attention_prefill_bf16_d128_packed")


@pytest.mark.parametrize(("tokens", "rows"), [(1024, 256), (256, 128), (64, 64)])
def test_the_planner_chooses_between_attention_kernels(tokens: int, rows: int) -> None:
    """Few rows are given small tiles, so that more units have some."""
    facts = {"dtype": "bf16", "stored": "bf16", "keys": "packed", "mask": NO_MASK, "padded": False}
    family = catalogue("gfx950").alternatives("attention_prefill", head_size=128, **facts)
    assert not isinstance(family, NoKernel)
    shape = standard.batch(1, tokens, 8, 8, True)
    entry, launch = standard.serving(family, shape, 16)
    assert entry.tile.rows == rows
    assert len(launch.work) == 8 * tokens // rows


def test_the_planner_chooses_between_gemm_kernels() -> None:
    """The same kernel and the same splits as a device would."""
    family = catalogue("gfx950").alternatives("gemm", a="bf16", b="bf16")
    assert not isinstance(family, NoKernel)
    for m, n, k in ((4, 512, 8192), (8192, 8192, 64)):
        entry, launch = standard.serving(family, standard.gemm.Shape(m, n, k), 256)
        plan = planned(family, m, n, k, 256)
        grid = plan.entry.grid(m=m, n=n, splits=plan.splits)
        assert (entry, len(launch.work)) == (plan.entry, grid[0])
    assert plan.splits == 1 < planned(family, 4, 512, 8192, 256).splits
