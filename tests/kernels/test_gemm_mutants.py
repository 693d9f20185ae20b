"""Mutants of the gemm kernels: every wait and barrier, weakened or removed, is noticed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, catalogue
from tests.kernels.cover import family, proved
from tests.kernels.gemm_launch import (
    TYPES,
    Product,
    can_split,
    launch,
    launch_mx,
    launch_mx_weights,
)
from tests.kernels.gemm_problem import Problem, random_problem
from tests.kernels.mutants import Mutant, code_of, mutants
from tests.kernels.mx_problem import MxProblem, MxWeightProblem, random_weight_problem
from tests.kernels.mx_problem import random_problem as random_mx_problem
from tests.proof.kernel_digest import instructions

WIDE, DEEP, SCALED = EVERY_RUN = "bf16_128x64", "bf16_deep_64x32", "fp8_blocks_deep_64x32"
"""A kernel with a small tile of each structure, and one with scales in the loop."""
WAITING = (
    *(*EVERY_RUN, "bf16_256x256", "bf16_128x128", "bf16_deep_64x96", "bf16_deep_32x32"),
    *("fp8_256x256", "fp8_128x128_s3", "fp8_deep_64x64", "fp8_bf16_128x256", "fp8_bf16_deep_64x64"),
    *("mxfp4_256x256", "mxfp4_mxfp6_e2m3_256x256", "mxfp8_128x128"),
    *("mxfp4_deep_32x32", "mxfp4_mxfp6_e2m3_deep_64x64"),
    *("mxfp8_bf16_128x256", "mxfp4_bf16_deep_32x128", "mxfp6_e2m3_bf16_deep_32x32"),
)
"""Kernels whose mutants are judged. The others have the same structures; those of fp16 have the
same instructions (a test below)."""
KERNELS = {name: catalogue("gfx950").kernel(f"gemm_{name}") for name in WAITING}
EPILOGUE = "gemm/epilogue.hpp"
"""The header in which the compiler waits for loaded arguments. In the large tiles these loads are
long done, since the loop has waited. Such waits are not ours, and not judged."""
STRICTER = {
    **{"mxfp4_256x256": 4, "mxfp4_mxfp6_e2m3_256x256": 4},  # noqa: PIE800
    **{"mxfp8_128x128": 3, "mxfp8_bf16_128x256": 3},  # noqa: PIE800
}
"""Kernels with waits of the compiler's in the epilogue, `vmcnt 4 -> 5`, that are stricter than
needed, and their number: it does not know that two blocks of columns have a bias of one type."""
AnyProblem = Problem | MxProblem | MxWeightProblem
SEEDS = (0, 1, 2)
FEWEST = 60
"""Least number of waits and barriers of a kernel that are changed, one at a time. A smaller number
would mean that some were not found."""


def entry_with(entry: KernelEntry, code_object: bytes, path: Path) -> KernelEntry:
    """The kernel with other code under its name, and without line tables."""
    path.write_bytes(code_object)
    digest = hashlib.sha256(code_object).hexdigest()
    lines = path.with_suffix(".lines")
    return dataclasses.replace(entry, path=path, lines=lines, size=len(code_object), sha256=digest)


def launched(entry: KernelEntry, problem: AnyProblem, splits: int, seed: int) -> Product:
    if isinstance(problem, MxProblem):
        return launch_mx(entry, problem, 1, splits, seed)
    if isinstance(problem, MxWeightProblem):
        return launch_mx_weights(entry, problem, (1, 1), splits, seed)
    return launch(entry, problem, (1, 1), splits, seed)


@cache
def launches(name: str) -> list[tuple[AnyProblem, int]]:
    """Problems and splits of the launches, the short ones first: ragged steps alone, with every
    type of c, with and without scales, and with a bias of every type; then ragged tiles with more
    steps than stages."""
    return _mx_launches(name) if name.startswith("mx") else _launches(name)


def _mx_launches(name: str) -> list[tuple[AnyProblem, int]]:
    entry = KERNELS[name]
    tile, size = entry.tile, (entry.tile.rows + 8, entry.tile.columns + 140)
    weights_alone = entry.facts["scales"] == "mx_weights"
    mx_problem = random_weight_problem if weights_alone else random_mx_problem
    found: list[tuple[AnyProblem, int]] = []
    for out in TYPES:
        found.append((mx_problem(entry, (40, 70, 32), out), 1))
        for kind in TYPES:
            found.append((mx_problem(entry, (40, 70, 32), out, True, kind), 1))
    if can_split(entry):
        split = mx_problem(entry, (40, 70, 7 * tile.depth + 32))
        found += [(split, splits) for splits in (3, 6)]
    # deep waves loop more than once, and end with one, two or three steps
    for steps in (29, 12) if "deep" in name else (8,):
        shape = *size, steps * tile.depth + 32
        found.append((mx_problem(entry, shape, torch.bfloat16, True, torch.float16), 1))
    return found


def _launches(name: str) -> list[tuple[AnyProblem, int]]:
    entry = KERNELS[name]
    tile, bias = entry.tile, torch.bfloat16
    size = (tile.rows + 8, tile.columns + 140)
    found: list[tuple[AnyProblem, int]] = []
    for out in TYPES:
        for scales in ("both", "none"):
            found.append((random_problem(entry, (40, 70, 20), out, scales), 1))
        for kind in TYPES:
            found.append((random_problem(entry, (40, 70, 20), out, "both", kind), 1))
    if can_split(entry):
        split = (40, 70, 7 * tile.depth + 3)
        found += [
            (random_problem(entry, split, torch.float32, "rows"), splits) for splits in (3, 6)
        ]
    # each deep wave has every fourth step, and its last round is of one, two or three
    for steps in (17, 12) if "deep" in name else (8,):
        shape = *size, steps * tile.depth + 20
        found.append((random_problem(entry, shape, torch.bfloat16, "both", bias), 1))
    return found


def caught(name: str, entry: KernelEntry, long_first: bool = False) -> bool:
    """Whether the emulator finds something, or the result is wrong, in any launch and order."""
    ordered = launches(name)[::-1] if long_first else launches(name)
    for seed in SEEDS:
        for problem, splits in ordered:
            product = launched(entry, problem, splits, seed)
            if product.report.findings or not product.is_right():
                return True
            if not product.outside_untouched or product.arrived.any():
                return True
    return False


def last_product(entry: KernelEntry) -> int:
    """Place of the last matrix instruction, behind the loop: what comes before it needs many steps
    to be noticed."""
    words, _, begin, end = code_of(entry)
    listed = _emulator.disassemble(words[begin:end], entry.arch)
    return begin + max(pc for pc, text in listed if text.startswith("v_mfma"))


def changed_code(entry: KernelEntry) -> Iterator[tuple[Mutant, bytes]]:
    code = entry.code_object()
    words, text, begin, end = code_of(entry)
    shipped = _emulator.CodeObject.load(code, entry.line_tables())
    lines = shipped.kernel(entry.symbol).lines
    for mutant in mutants(words, entry.arch, begin, end):
        if EPILOGUE in lines.get(mutant.pc, "") and ": lgkmcnt" in mutant.change:
            continue
        yield mutant, mutant.apply(code, text)


@proved(list(KERNELS.values()))
def test_every_wait_and_barrier_is_needed(entry: KernelEntry, tmp_path: Path) -> None:
    name = entry.name.removeprefix("gemm_")
    assert not caught(name, entry)
    survivors, count, last = [], 0, last_product(entry)
    for mutant, code in changed_code(entry):
        count += 1
        changed = entry_with(entry, code, tmp_path / "mutant.co")
        if not caught(name, changed, long_first=mutant.pc <= last):
            survivors.append(str(mutant))
    stricter = [each for each in survivors if each.endswith("vmcnt 4 -> 5")]
    assert len(stricter) == STRICTER.get(name, 0)
    assert survivors == stricter
    assert count >= FEWEST


@pytest.mark.parametrize(
    "entry",
    [e for e in family("gemm") if e.facts["a"] == "bf16" and e.facts["scales"] != "mx_weights"],
    ids=lambda entry: entry.name,
)
def test_in_fp16_it_is_the_same(entry: KernelEntry) -> None:
    """All instructions are equal except for the names of types."""
    twin = catalogue(entry.arch).kernel(entry.name.replace("bf16", "f16"))
    own, of_twin = (
        [line.replace("bf16", "f16") for line in instructions(each)] for each in (entry, twin)
    )
    assert own == of_twin
