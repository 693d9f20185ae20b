"""Every wait and barrier of the gemm kernel is needed: weakened or removed, it is found out."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.toolchain.compiler import Toolchain
from hk_backend.kernels.toolchain.elf import Elf
from tests.kernels import source_mutants
from tests.kernels.catalogues import selected
from tests.kernels.mutants import Mutant, mutants
from tests.kernels.source_mutants import SourceMutant
from tests.kernels.test_gemm import is_right, launch, normal, type_of

ENTRY = selected("gemm", out="bf16")  # fp16 differs in the two instructions that know the type
# Masked and whole steps, more of them than stages; several workgroups; one ragged step alone.
SHAPES = ((300, 140, 200), (257, 8, 128), (40, 33, 20))
SEEDS = (0, 1, 2)


def entry_with(entry: KernelEntry, code_object: bytes, path: Path) -> KernelEntry:
    """The kernel with other code under its name, and without line tables."""
    path.write_bytes(code_object)
    digest = hashlib.sha256(code_object).hexdigest()
    lines = path.with_suffix(".lines")
    return dataclasses.replace(entry, path=path, lines=lines, size=len(code_object), sha256=digest)


def caught(entry: KernelEntry) -> bool:
    """Whether the emulator finds something, or the result is wrong, in any shape and wave order."""
    for m, n, k in SHAPES:
        a, b = normal(type_of(ENTRY), m, k, seed=1), normal(type_of(ENTRY), n, k, seed=2)
        for seed in SEEDS:
            c, report = launch(entry, a, b, (0, 8, 0), seed)
            if report.findings or not is_right(c.matrix, a, b):
                return True
    return False


def test_every_wait_and_barrier_is_needed(tmp_path: Path) -> None:
    code = ENTRY.code_object()
    elf = Elf(code)
    text = elf.sections[".text"]
    begin, size = elf.symbols()[ENTRY.symbol]
    begin -= text.address
    words = code[text.offset : text.offset + text.size]
    all_of_them = list(mutants(words, ENTRY.arch, begin, begin + size))
    assert len(all_of_them) > 20

    def changed(mutant: Mutant) -> KernelEntry:
        return entry_with(ENTRY, mutant.apply(code, text.offset), tmp_path / "mutant.co")

    assert not caught(ENTRY)
    survivors = [mutant for mutant in all_of_them if not caught(changed(mutant))]
    assert not survivors, [str(mutant) for mutant in survivors]


def test_the_unchanged_source_passes(tmp_path: Path, tools: Toolchain) -> None:
    code = source_mutants.compile_mutant(None, tmp_path, tools, [ENTRY])
    assert not caught(entry_with(ENTRY, code, tmp_path / "same.co"))


@pytest.mark.parametrize("mutant", source_mutants.GEMM_MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_of_the_source(mutant: SourceMutant, tmp_path: Path, tools: Toolchain) -> None:
    code = source_mutants.compile_mutant(mutant, tmp_path, tools, [ENTRY])
    assert caught(entry_with(ENTRY, code, tmp_path / "mutant.co"))
