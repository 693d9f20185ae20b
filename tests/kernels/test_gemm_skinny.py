"""Candidates for few rows (tests/kernels/candidates), in the emulator against float64."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hk_backend.kernels import KernelEntry
from tests.kernels.candidates import built
from tests.kernels.gemm_launch import TYPES, launch, multiply
from tests.kernels.gemm_problem import SCALES, Problem, format_of, random_problem
from tests.seed import fixed

NAMES = [
    f"gemm_{format}_{kind}x{columns}"
    for format in ("bf16", "fp8")
    for kind in ("sparse_8", "dense_16")
    for columns in (32, 16)
]
COLUMNS = (1, 15, 16, 17, 31, 32, 33, 64, 100, 257)
DEPTHS = (1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 127, 128, 129, 200, 321, 449, 1000, 2100)
LAUNCHES = 16
FIRST_PAIRS, LAST_PAIRS = (bytes.fromhex(digit * 8) for digit in "4e")
"""Literals in the code: indices of the first and of the last two of every four elements."""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelEntry]:
    folder = tmp_path_factory.mktemp("candidates")
    return {entry.name: entry for entry in built(folder, "gemm_skinny", "gemm")}


@pytest.fixture(params=NAMES)
def kernel(kernels: dict[str, KernelEntry], request: pytest.FixtureRequest) -> KernelEntry:
    return kernels[request.param]


def test_all_of_them_are_tested(kernels: dict[str, KernelEntry]) -> None:
    assert set(kernels) == set(NAMES)
    assert not any(entry.spills or entry.scratch for entry in kernels.values())


def test_random_launches(kernel: KernelEntry) -> None:
    """Every number of rows of a tile. All bytes that must not matter are NaN."""
    random = fixed(f"launches {kernel.name}")
    rows = [*range(1, kernel.tile.rows + 1), *(random.randrange(1, 20) for _ in range(LAUNCHES))]
    for seed, m in enumerate(rows[:LAUNCHES]):
        shape = m, random.choice(COLUMNS), random.choice(DEPTHS)
        out, bias = random.choice(TYPES), random.choice((None, *TYPES))
        problem = random_problem(kernel, shape, out, random.choice(SCALES), bias, seed)
        found = multiply(kernel, problem, (random.randrange(4), random.randrange(4)), seed=seed)
        assert found.is_right(), (shape, out, bias)


def test_integers_are_exact(kernel: KernelEntry) -> None:
    """Every element of the depth meets its own weight: each has another product."""
    generator = torch.Generator().manual_seed(5)
    m, n, k = kernel.tile.rows, 48, 21 * kernel.tile.depth - 5
    a, w = (torch.randint(-8, 9, (rows, k), generator=generator) for rows in (m, n))
    problem = Problem(a.to(format_of(kernel)), w.to(format_of(kernel, "b")))
    assert torch.equal(multiply(kernel, problem).c, problem.exact()[0].float())


def test_the_indices_swapped_are_wrong(kernel: KernelEntry, tmp_path: Path) -> None:
    """A control: the last two of every four elements take the place of the first two."""
    code = kernel.code_object()
    assert code.count(FIRST_PAIRS) == code.count(LAST_PAIRS) > 0
    parts = (part.replace(LAST_PAIRS, FIRST_PAIRS) for part in code.split(FIRST_PAIRS))
    swapped = LAST_PAIRS.join(parts)
    path = tmp_path / kernel.path.name
    path.write_bytes(swapped)
    changed = replace(kernel, path=path, lines=tmp_path, sha256=hashlib.sha256(swapped).hexdigest())
    problem = random_problem(kernel, (8, 32, 200))
    found = launch(changed, problem)
    assert not found.report.findings
    assert found.is_right() == ("dense" in kernel.name)


def test_wave_orders_are_bit_identical(kernel: KernelEntry) -> None:
    shape = kernel.tile.rows, 2 * kernel.tile.columns + 5, 1100
    problem = random_problem(kernel, shape, torch.bfloat16, "both", torch.bfloat16)
    results = [multiply(kernel, problem, (1, 0), seed=seed) for seed in range(3)]
    assert results[0].is_right()
    for other in results[1:]:
        assert torch.equal(other.c.view(torch.int16), results[0].c.view(torch.int16))


def test_whole_tiles_waste_nothing(kernel: KernelEntry) -> None:
    m, n, k = kernel.tile.rows, kernel.tile.columns, 12 * kernel.tile.depth
    found = multiply(kernel, random_problem(kernel, (m, n, k)))
    assert found.report.counters.matrix_flops == 2 * m * n * k


def test_nan_stays_in_its_row_and_its_column(kernel: KernelEntry) -> None:
    """A NaN in each of a, a_scale and b_scale, and in a bf16 weight. (The packer of FP8 weights
    leaves none.)"""
    m, n, k = 7, 70, 3 * kernel.tile.depth + 16
    a, w, wanted = torch.ones(m, k), torch.ones(n, k), torch.full((m, n), float(k))
    a[2, k - 1], wanted[2] = math.nan, math.nan
    if format_of(kernel) == torch.bfloat16:
        w[16], wanted[:, 16] = math.nan, math.nan
    a_scale, b_scale = torch.ones(m), torch.ones(n)
    a_scale[4], wanted[4] = math.nan, math.nan
    b_scale[33], wanted[:, 33] = math.nan, math.nan
    problem = Problem(
        a.to(format_of(kernel)), w.to(format_of(kernel, "b")), torch.float32, a_scale, b_scale
    )
    found = multiply(kernel, problem).c
    assert torch.equal(found.nan_to_num(nan=-1), wanted.nan_to_num(nan=-1))


def test_zero_depth_gives_the_bias(kernel: KernelEntry) -> None:
    a = torch.empty(5, 0, dtype=format_of(kernel))
    w = torch.empty(50, 0, dtype=format_of(kernel, "b"))
    bias = torch.arange(50).bfloat16()
    found = multiply(kernel, Problem(a, w, torch.bfloat16, bias=bias), (1, 0))
    assert torch.equal(found.c, bias.expand(5, 50))
    assert found.report.counters.matrix_flops == 0
