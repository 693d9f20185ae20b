"""What the suite would notice: every mutant of the attention kernels is caught.

A survivor is either a wait that the kernel does not need (then it goes) or something that the
emulator or the cases do not see (then they learn to).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.toolchain.compiler import Toolchain
from tests.kernels import mutants, source_mutants
from tests.kernels.source_mutants import SourceMutant

NAME = "attention_prefill_bf16_d64_paged"
"""Of the template's kernels the one whose mutants every run judges; the others' are slow."""
ENTRIES = [
    pytest.param(entry, id=entry.name, marks=[] if entry.name == NAME else pytest.mark.slow)
    for entry in catalogue("gfx950").kernels
    if "attention" in entry.name
]
FEWEST = 80
"""Waits and barriers of a kernel, changed one at a time; fewer would mean that they were missed."""


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_wait_and_every_barrier_is_needed(entry: KernelEntry) -> None:
    verdicts = list(mutants.run(entry))
    assert len(verdicts) >= FEWEST
    assert [str(verdict) for verdict in mutants.survivors(verdicts)] == []


@pytest.fixture(scope="module")
def entry() -> KernelEntry:
    return catalogue("gfx950").kernel(NAME)


def judged(code_object: bytes) -> dict[str, str | None]:
    """By kernel."""
    known = catalogue("gfx950")
    names = [f"attention_prefill_{kept}" for kept in source_mutants.KEPT]
    return {name: source_mutants.caught_by(known.kernel(name), code_object) for name in names}


def test_the_unchanged_source_passes(tmp_path: Path, tools: Toolchain) -> None:
    verdicts = judged(source_mutants.compile_mutant(None, tmp_path, tools))
    assert set(verdicts.values()) == {None}


@pytest.mark.parametrize("mutant", source_mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_of_the_source(mutant: SourceMutant, tmp_path: Path, tools: Toolchain) -> None:
    verdicts = judged(source_mutants.compile_mutant(mutant, tmp_path, tools))
    concerned = {name: how for name, how in verdicts.items() if concerns(mutant, name)}
    assert concerned
    assert None not in concerned.values(), concerned


def concerns(mutant: SourceMutant, kernel: str) -> bool:
    """Pages are of the paged kernels alone; a packed tensor's own end, of the packed ones."""
    if mutant.name.startswith("pages"):
        return kernel.endswith("_paged")
    return mutant.name != "descriptor: no end" or kernel.endswith("_packed")
