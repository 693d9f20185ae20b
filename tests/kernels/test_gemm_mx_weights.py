"""The gemm kernels for bf16 activations and weights in MX formats, in the emulator: right for any
sizes against float64, without findings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.kernels import KernelEntry
from hk_backend.terms.weight_format import FORMATS
from tests.kernels.cover import cover, family, has, proved
from tests.kernels.gemm_launch import TYPES, Product, can_split, multiply_mx_weights, tiles_of
from tests.kernels.mx_problem import (
    BLOCK,
    FORMAT_OF,
    NAN,
    ONE,
    MxWeightProblem,
    Operand,
    quantised,
    random_weight_problem,
    steps_of,
)
from tests.proof.measured import note_error
from tests.seed import fixed

MX_WEIGHTS = {"scales": ("mx_weights",)}
ALL = [entry for entry in family("gemm") if has(entry, MX_WEIGHTS)]
every_kernel = proved(ALL)
every_split = pytest.mark.parametrize("splits", [1, 2])

LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
BLOCKS = (1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 24, 33)
"""Blocks of 32 along the depth."""
PADDINGS = (0, 1, 3)
SPLITS = (1, 2, 3, 5)
AXES: dict[str, Any] = {
    "m": fixed("mx weights m").sample(LENGTHS, 6),
    "n": fixed("mx weights n").sample(LENGTHS, 6),
    "blocks": fixed("mx weights k").sample(BLOCKS, 6),
    "pad_a": PADDINGS,
    "pad_c": PADDINGS,
    "out": TYPES,
    "bias": (None, *TYPES),
    "scaled": (False, True),
    "splits": SPLITS,
}
COVER = [
    pytest.param(entry, *axes.values(), number, id=f"{entry.name}-{axes}")
    for number, (entry, axes) in enumerate(cover("mx weights", "gemm", MX_WEIGHTS, **AXES))
]


def format_of(entry: KernelEntry) -> str:
    return FORMAT_OF[str(entry.facts["b"])]


def multiplies(
    entry: KernelEntry,
    problem: MxWeightProblem,
    paddings: tuple[int, int] = (0, 0),
    splits: int = 1,
    seed: int = 0,
) -> Product:
    """Launches the kernel, and asserts a right result with no more work than its tiles have."""
    splits = splits if can_split(entry) else 1
    found = multiply_mx_weights(entry, problem, paddings, splits, seed)
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
    pad_a: int,
    pad_c: int,
    out: torch.dtype,
    bias: torch.dtype | None,
    scaled: bool,
    splits: int,
    seed: int,
) -> None:
    problem = random_weight_problem(entry, (m, n, blocks * BLOCK), out, scaled, bias, seed)
    multiplies(entry, problem, (pad_a, pad_c), splits, seed)


RANDOM_LAUNCHES = 30


@every_kernel
def test_random_launches(entry: KernelEntry) -> None:
    random = fixed(f"launches {entry.name}")
    for _ in range(RANDOM_LAUNCHES):
        shape = random.choice(LENGTHS), random.choice(LENGTHS), random.choice(BLOCKS) * BLOCK
        values = random.choice(TYPES), random.random() < 0.5, random.choice((None, *TYPES))
        problem = random_weight_problem(entry, shape, *values, random.randrange(2**16))
        paddings = random.choice(PADDINGS), random.choice(PADDINGS)
        multiplies(entry, problem, paddings, random.choice(SPLITS))


@every_kernel
@every_split
def test_many_steps(entry: KernelEntry, splits: int) -> None:
    """Waves that share the depth run different numbers of loop steps, and end in different ways."""
    for blocks in range(33, 33 + 5 * entry.tile.depth // BLOCK, entry.tile.depth // BLOCK // 2):
        problem = random_weight_problem(entry, (33, 40, blocks * BLOCK), seed=blocks)
        multiplies(entry, problem, splits=splits)


@every_kernel
def test_every_code(entry: KernelEntry) -> None:
    """Row r of the weights holds code r in one place, which the activations alone read: sums are
    exact."""
    format, k = format_of(entry), 3 * BLOCK
    bits = FORMATS[format].bits
    codes = torch.arange(2**bits)
    if bits == 8:
        codes[(codes & 0x7F) == 0x7F] = 0
    for place in (0, 5, 31, 32, 70, k - 1):
        row = torch.zeros(2**bits, k * bits, dtype=torch.long)
        for bit in range(bits):
            row[:, place * bits + bit] = (codes >> bit) & 1
        octets = (row.view(2**bits, -1, 8) << torch.arange(8)).sum(-1).byte()
        scales = torch.full((2**bits, k // BLOCK), ONE + 3, dtype=torch.uint8)
        a = torch.zeros(9, k, dtype=torch.bfloat16)
        a[:, place] = torch.arange(9) - 4.0
        problem = MxWeightProblem(a, Operand(octets, scales, format))
        assert torch.equal(multiplies(entry, problem).c, problem.exact()[0].float())


def ones(entry: KernelEntry, rows: int, k: int) -> Operand:
    return quantised(torch.ones(rows, k), format_of(entry))


@every_kernel
def test_each_scale_is_that_of_its_own_block(entry: KernelEntry) -> None:
    """Every block of every row has a scale of its own. A scale of a neighbour would show."""
    k = 5 * 256 // 2
    places = torch.arange(100 * k // BLOCK).view(100, -1)
    w = replace(ones(entry, 100, k), scales=(ONE - 9 + places * 5 % 17).byte())
    for splits in (1, 2):
        a = (1 + torch.arange(70 * k).view(70, k) % 7).bfloat16()
        found = multiplies(entry, MxWeightProblem(a, w), splits=splits)
        changed = replace(w, scales=w.scales.roll(1, 1))
        assert not torch.equal(found.c.double(), MxWeightProblem(a, changed).exact()[0])


@every_kernel
@every_split
def test_overflow_and_nan_stay_in_their_rows_and_columns(entry: KernelEntry, splits: int) -> None:
    """Infinity and NaN of activations stay in their rows, NaN of a block's scale in its column."""
    k = 3 * 256 + 32
    a, w = torch.ones(70, k), ones(entry, 100, k)
    wanted = torch.full((70, 100), float(k))
    a[7, 15], wanted[7] = math.nan, math.nan
    a[9, k - 1], wanted[9] = -math.inf, -math.inf
    a[11, 0], a[11, 1], wanted[11] = -math.inf, math.inf, math.nan
    w.scales[5, 0] = w.scales[99, 20] = NAN
    factors = torch.ones(100)
    factors[50] = math.nan
    wanted[:, [5, 50, 99]] = math.nan
    problem = MxWeightProblem(a.bfloat16(), w, torch.bfloat16, factors)
    splits = splits if can_split(entry) else 1
    found = multiply_mx_weights(entry, problem, splits=splits).c.float()
    wanted = wanted.bfloat16().float()
    assert torch.equal(found.nan_to_num(nan=7e7), wanted.nan_to_num(nan=7e7))


@every_kernel
def test_scales_at_the_ends_of_their_range(entry: KernelEntry) -> None:
    """The least scale is 2^-127, not zero; the largest makes 2^127 of the ones."""
    a, w = torch.ones(3, BLOCK), ones(entry, 4, BLOCK)
    w.scales[0], w.scales[1] = 0, w.scales[1] + ONE
    a[:, 1:] = 0
    for row, power in enumerate((0, 100, -100)):
        a[row, 0] = 2.0**power
    problem = MxWeightProblem(a.bfloat16(), w)
    found = multiply_mx_weights(entry, problem).c
    assert torch.equal(found, problem.exact()[0].float())
    assert found[1, 0] > 0
    assert found[0, 1] == 2.0**127


@every_kernel
def test_blocks_of_zeros(entry: KernelEntry) -> None:
    """All of a, or all of w, is zero, whatever the scales are: only the bias is left."""
    problem = random_weight_problem(entry, (40, 70, 288), scaled=True, bias=torch.float32)
    assert problem.bias is not None
    w = replace(problem.w, codes=torch.zeros_like(problem.w.codes))
    for changed in (replace(problem, a=torch.zeros_like(problem.a)), replace(problem, w=w)):
        found = multiply_mx_weights(entry, changed).c
        assert torch.equal(found, problem.bias.expand(40, 70))


@every_kernel
@every_split
def test_zero_depth_gives_the_bias(entry: KernelEntry, splits: int) -> None:
    w = ones(entry, 50, BLOCK)
    nothing = Operand(w.codes[:, :0], w.scales[:, :0], w.format)
    bias = torch.arange(50).bfloat16()
    problem = MxWeightProblem(torch.empty(40, 0).bfloat16(), nothing, torch.bfloat16, bias=bias)
    splits = splits if can_split(entry) else 1
    found = multiply_mx_weights(entry, problem, (1, 0), splits)
    assert torch.equal(found.c, bias.expand(40, 50))
    assert found.report.counters.matrix_flops == 0


@every_kernel
def test_outliers(entry: KernelEntry) -> None:
    """Activations reach from bf16's least to numbers whose products are still finite."""
    problem = random_weight_problem(entry, (70, 40, 5 * BLOCK), torch.bfloat16)
    a = problem.a.float()
    a[:, ::13] *= 2.0**100
    a[::3, 5::13] *= torch.finfo(torch.bfloat16).smallest_normal
    multiplies(entry, replace(problem, a=a.bfloat16()))


@every_kernel
def test_wave_orders_are_bit_identical(entry: KernelEntry) -> None:
    problem = random_weight_problem(entry, (100, 140, 15 * BLOCK))
    splits = 3 if can_split(entry) else 1
    found = [multiply_mx_weights(entry, problem, (1, 0), splits, seed).c for seed in range(4)]
    assert all(torch.equal(found[0], other) for other in found[1:])


@every_kernel
@every_split
def test_eight_tiles_go_round_the_xcds(entry: KernelEntry, splits: int) -> None:
    """If the number of workgroups is a multiple of 8, each tile is still computed once."""
    shape = 4 * entry.tile.rows, 2 * entry.tile.columns, BLOCK
    multiplies(entry, random_weight_problem(entry, shape), splits=splits)
