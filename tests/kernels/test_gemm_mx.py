"""The gemm kernels for MX formats in the emulator: right for any sizes against float64, without
findings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.kernels import KernelEntry
from hk_backend.terms.weight_format import FORMATS
from tests.kernels.cover import cover, family, has, proved
from tests.kernels.gemm_launch import TYPES, Product, can_split, multiply_mx, tiles_of
from tests.kernels.mx_problem import (
    BLOCK,
    NAN,
    ONE,
    MxProblem,
    Operand,
    formats_of,
    quantised,
    random_problem,
    steps_of,
)
from tests.proof.measured import note_error
from tests.seed import fixed

MX = {"scales": ("mx",)}
ALL = [entry for entry in family("gemm") if has(entry, MX)]
every_kernel = proved(ALL)
SPLITTING = [entry for entry in ALL if can_split(entry)]

LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
BLOCKS = (1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 24, 33)
"""Blocks of 32 along the depth."""
SPLITS = (1, 2, 3, 5)
AXES: dict[str, Any] = {
    "m": fixed("mx m").sample(LENGTHS, 6),
    "n": fixed("mx n").sample(LENGTHS, 6),
    "blocks": fixed("mx k").sample(BLOCKS, 6),
    "padding": (0, 1, 3),
    "out": TYPES,
    "bias": (None, *TYPES),
    "scaled": (False, True),
    "splits": SPLITS,
}
ROWS = cover("mx shapes", "gemm", MX, **AXES)
COVER = [
    pytest.param(entry, *axes.values(), number, id=f"{entry.name}-{axes}")
    for number, (entry, axes) in enumerate(ROWS)
]


def multiplies(
    entry: KernelEntry, problem: MxProblem, padding: int = 0, splits: int = 1, seed: int = 0
) -> Product:
    """Launches the kernel, and asserts a right result with no more work than its tiles have."""
    found = multiply_mx(entry, problem, padding, splits if can_split(entry) else 1, seed)
    assert found.is_right()
    note_error(found.excess())
    m, n, k = problem.shape
    tile = entry.tile
    work = 2 * tile.rows * tile.columns * tile.depth * steps_of(entry, k)
    assert found.report.counters.matrix_flops == tiles_of(entry, m, n) * work
    return found


@pytest.mark.proof
@pytest.mark.parametrize(("entry", *AXES, "seed"), COVER)
def test_a_pairwise_cover_of_launches(
    entry: KernelEntry,
    m: int,
    n: int,
    blocks: int,
    padding: int,
    out: torch.dtype,
    bias: torch.dtype | None,
    scaled: bool,
    splits: int,
    seed: int,
) -> None:
    problem = random_problem(entry, (m, n, blocks * BLOCK), out, scaled, bias, seed)
    multiplies(entry, problem, padding, splits, seed)


RANDOM_LAUNCHES = 30


@every_kernel
def test_random_launches(entry: KernelEntry) -> None:
    random = fixed(f"launches {entry.name}")
    for _ in range(RANDOM_LAUNCHES):
        shape = random.choice(LENGTHS), random.choice(LENGTHS), random.choice(BLOCKS) * BLOCK
        values = random.choice(TYPES), random.random() < 0.5, random.choice((None, *TYPES))
        problem = random_problem(entry, shape, *values, random.randrange(2**16))
        multiplies(entry, problem, random.randrange(3), random.choice(SPLITS))


@every_kernel
def test_numbers_that_were_rounded(entry: KernelEntry) -> None:
    """Rows of normal numbers with outliers, as a layer has them."""
    random = torch.Generator().manual_seed(7)
    a, w = (torch.randn(rows, 1024, generator=random) for rows in (70, 90))
    a[:, ::97] *= 300
    of_a, of_w = formats_of(entry)
    multiplies(entry, MxProblem(quantised(a, of_a), quantised(w, of_w), torch.bfloat16), splits=2)


def ones(format: str, rows: int, k: int) -> Operand:
    return quantised(torch.ones(rows, k), format)


@every_kernel
def test_every_pair_of_codes(entry: KernelEntry) -> None:
    """Row r of either side holds code r, and the other side one number in each block: sums are
    exact, so that every pair of codes of the formats shows."""
    of_a, of_w = formats_of(entry)
    sides = []
    for format in (of_a, of_w):
        bits = FORMATS[format].bits
        codes = torch.arange(2**bits)
        if bits == 8:
            codes[(codes & 0x7F) == 0x7F] = 0
        shifts = torch.arange(0, BLOCK * bits, bits)
        row = torch.zeros(2**bits, BLOCK * bits, dtype=torch.long)
        for bit in range(bits):
            row[:, shifts + bit] = (codes[:, None] >> bit) & 1
        octets = (row.view(2**bits, -1, 8) << torch.arange(8)).sum(-1)
        scales = torch.full((2**bits, 1), ONE, dtype=torch.uint8)
        sides.append(Operand(octets.byte(), scales, format))
    problem = MxProblem(*sides)
    found = multiplies(entry, problem)
    assert torch.equal(found.c, problem.exact()[0].float())


@every_kernel
def test_each_scale_is_that_of_its_own_block(entry: KernelEntry) -> None:
    """Every block of every row has a scale of its own. A scale of a neighbour would show."""
    of_a, of_w = formats_of(entry)
    k = 5 * 256 // 2
    a, w = ones(of_a, 70, k), ones(of_w, 100, k)
    places = torch.arange(70 * k // BLOCK).view(70, -1)
    a = replace(a, scales=(ONE - 10 + places * 7 % 19).byte())
    places = torch.arange(100 * k // BLOCK).view(100, -1)
    w = replace(w, scales=(ONE - 9 + places * 5 % 17).byte())
    for splits in (1, 2):
        problem = MxProblem(a, w)
        found = multiplies(entry, problem, splits=splits)
        changed = replace(a, scales=a.scales.roll(1, 1))
        assert not torch.equal(found.c.double(), MxProblem(changed, w).exact()[0])


@every_kernel
@pytest.mark.parametrize("splits", [1, 2])
def test_nan_stays_in_its_row_and_column(entry: KernelEntry, splits: int) -> None:
    """A NaN scale of a block makes NaN of its row or column; a NaN factor does so, too."""
    of_a, of_w = formats_of(entry)
    k = 3 * 256 + 32
    a, w = ones(of_a, 70, k), ones(of_w, 100, k)
    a.scales[7, 3] = a.scales[64, 24] = NAN
    w.scales[5, 0] = w.scales[99, 20] = NAN
    factors = torch.ones(100)
    factors[50] = math.nan
    found = multiply_mx(
        entry,
        MxProblem(a, w, torch.bfloat16, factors),
        splits=splits if can_split(entry) else 1,
    ).c
    wanted = torch.full((70, 100), float(k))
    wanted[[7, 64]] = math.nan
    wanted[:, [5, 50, 99]] = math.nan
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found.nan_to_num(), wanted.bfloat16().nan_to_num())


@every_kernel
def test_scales_at_the_ends_of_their_range(entry: KernelEntry) -> None:
    """2^-127 times 2^127; the largest of both overflow to infinity."""
    of_a, of_w = formats_of(entry)
    a, w = ones(of_a, 3, BLOCK), ones(of_w, 4, BLOCK)
    unit = int(a.scales[0, 0]), int(w.scales[0, 0])
    a.scales[0], w.scales[0] = 0, 254
    a.scales[1], w.scales[1] = 254, 0
    a.scales[2], w.scales[2] = 254, 254
    found = multiply_mx(entry, MxProblem(a, w)).c.double()
    exact = MxProblem(a, w).exact()[0]
    assert unit
    assert torch.equal(found[:2, :2], exact.float().double()[:2, :2])
    assert found[2, 2] == math.inf


@every_kernel
def test_blocks_of_zeros(entry: KernelEntry) -> None:
    """All of a, or all of w, is zero, whatever the scales are: only the bias is left."""
    problem = random_problem(entry, (40, 70, 288), scaled=True, bias=torch.float32)
    assert problem.bias is not None
    for name in ("a", "w"):
        side = getattr(problem, name)
        changed = replace(problem, **{name: replace(side, codes=torch.zeros_like(side.codes))})
        assert torch.equal(multiply_mx(entry, changed).c, problem.bias.expand(40, 70))


@every_kernel
def test_wave_orders_are_bit_identical(entry: KernelEntry) -> None:
    problem = random_problem(entry, (100, 140, 15 * BLOCK))
    splits = 3 if can_split(entry) else 1
    found = [multiply_mx(entry, problem, splits=splits, seed=seed).c for seed in range(4)]
    assert all(torch.equal(found[0], other) for other in found[1:])


@every_kernel
@pytest.mark.parametrize("splits", [1, 2])
def test_many_steps(entry: KernelEntry, splits: int) -> None:
    """Waves that share the depth run different numbers of loop steps, and end in different ways."""
    for blocks in range(33, 33 + 5 * entry.tile.depth // BLOCK, entry.tile.depth // BLOCK // 2):
        problem = random_problem(entry, (33, 40, blocks * BLOCK), seed=blocks)
        multiplies(entry, problem, splits=splits)
