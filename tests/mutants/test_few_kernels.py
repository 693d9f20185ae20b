"""The few kernels of a source that have all that the source's kernels have."""

from __future__ import annotations

from hk_backend.kernels import catalogue
from hk_backend.lab.toolchain.sources import NAMED
from tests.kernels.sources import INFO, KERNEL
from tests.models import ROOT
from tests.mutants.few_kernels import few_kernels, only

SOURCE = "csrc/kernels/attention_prefill.hip"


def test_each_head_size_each_cache_and_each_tile_is_among_them() -> None:
    kernels = [e for e in catalogue("gfx950").kernels if e.path.stem == "attention_prefill"]
    chosen = [entry for entry in kernels if entry.name in few_kernels(SOURCE)]
    assert len(chosen) < len(kernels) / 2
    for fact in ("dtype", "head_size", "keys"):
        assert {e.facts[fact] for e in chosen} == {e.facts[fact] for e in kernels}
    assert {e.tile.rows for e in chosen} == {e.tile.rows for e in kernels}


def test_the_source_keeps_one_kernel_and_all_other_lines() -> None:
    name = "attention_prefill_bf16_d64_paged"
    every = [e.name for e in catalogue("gfx950").kernels if e.path.stem == "attention_prefill"]
    shorter, whole = only(ROOT, SOURCE, [name]), only(ROOT, SOURCE, every)
    arches = NAMED.search(shorter)
    assert arches
    assert arches[1] == "gfx950"
    assert KERNEL.findall(shorter) == INFO.findall(shorter) == [name]
    assert set(KERNEL.findall(whole)) == set(INFO.findall(whole)) == set(every)
    lines = zip(shorter.splitlines(), whole.splitlines(), strict=True)
    changed = [after for before, after in lines if before != after]
    assert 0 < len(changed) < len(every)
    assert all("attention_prefill_" in line for line in changed)
