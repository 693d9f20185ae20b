"""Mutants of the quantize_mx kernels: every wait, weakened or removed, is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hk_backend.kernels import KernelEntry
from tests.kernels.cover import family, proved
from tests.kernels.mutants import Mutant, code_of, mutants
from tests.kernels.quantize_mx_launch import Case, is_right, launch
from tests.kernels.test_gemm_mutants import entry_with
from tests.kernels.test_quantize_mx import numbers

SEEDS = (0, 1)


def cases(entry: KernelEntry) -> Iterator[Case]:
    """A case of each layout, with a rotation and without one."""
    x = numbers(entry, 17, 128, seed=0)
    for rotation in (0, 128):
        for packed in (False, True):
            yield Case(x, rotation, True, packed)


def caught(entry: KernelEntry, tried: list[Case]) -> bool:
    """Whether the emulator finds something, or a bit is wrong, in any case and wave order."""
    for case in tried:
        for seed in SEEDS:
            outcome = launch(entry, case, seed)
            if outcome.report.findings or not is_right(entry, case, outcome):
                return True
    return False


@proved(family("quantize_mx"))
def test_every_wait_is_needed(entry: KernelEntry, tmp_path: Path) -> None:
    words, text, begin, end = code_of(entry)
    tried = list(cases(entry))

    def changed(mutant: Mutant) -> KernelEntry:
        return entry_with(entry, mutant.apply(entry.code_object(), text), tmp_path / "mutant.co")

    assert not caught(entry, tried)
    all_of_them = list(mutants(words, entry.arch, begin, end))
    assert len(all_of_them) > 5
    survivors = [mutant for mutant in all_of_them if not caught(changed(mutant), tried)]
    assert not survivors, [str(mutant) for mutant in survivors]
