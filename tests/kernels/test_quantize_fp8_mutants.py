"""Mutants of the quantize_fp8 kernels: every wait and barrier, weakened or removed, is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from hk_backend.kernels import KernelEntry
from tests.kernels.cover import family, proved
from tests.kernels.mutants import Mutant, code_of, mutants
from tests.kernels.quantize_launch import Case, is_right, launch
from tests.kernels.test_gemm_mutants import entry_with
from tests.kernels.test_quantize_fp8 import numbers, scales_for

SEEDS = (0, 1)


def cases(entry: KernelEntry) -> Iterator[Case]:
    """Cases of one piece per lane, of all that a lane keeps, and of more; whole pieces and
    elements."""
    tile = entry.tile.columns
    for m, k in ((2, 8), (2, 7), (1, tile), (1, tile + 8), (1, tile + 2057)):
        x = numbers(entry, m, k, seed=k)
        given = scales_for(entry, x, "token")
        yield Case(x, given if given is None else torch.full_like(given, 0.1), "token")


def caught(entry: KernelEntry, tried: list[Case]) -> bool:
    """Whether the emulator finds something, or a bit is wrong, in any case and wave order."""
    for case in tried:
        for seed in SEEDS:
            outcome = launch(entry, case, seed)
            if outcome.report.findings or not is_right(entry, case, outcome):
                return True
    return False


@proved(family("quantize_fp8"))
def test_every_wait_and_barrier_is_needed(entry: KernelEntry, tmp_path: Path) -> None:
    words, text, begin, end = code_of(entry)
    tried = list(cases(entry))

    def changed(mutant: Mutant) -> KernelEntry:
        return entry_with(entry, mutant.apply(entry.code_object(), text), tmp_path / "mutant.co")

    assert not caught(entry, tried)
    all_of_them = list(mutants(words, entry.arch, begin, end))
    assert len(all_of_them) > 5
    survivors = [mutant for mutant in all_of_them if not caught(changed(mutant), tried)]
    assert not survivors, [str(mutant) for mutant in survivors]
