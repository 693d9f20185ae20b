"""The gemm kernels in the emulator: right for any m, n, k against float64, without findings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.kernels import KernelEntry
from tests.kernels.cover import cover, family, has, proved
from tests.kernels.gemm_launch import TYPES, can_split, multiply, tiles_of
from tests.kernels.gemm_problem import (
    SCALES,
    Problem,
    format_of,
    random_problem,
    scales_of_blocks,
)
from tests.proof.measured import note_error
from tests.seed import fixed

SCALE_KINDS = {"scales": ("vectors", "blocks")}  # MX formats: test_gemm_mx.py
ALL = [entry for entry in family("gemm") if has(entry, SCALE_KINDS)]
every_kernel = proved(ALL)
bf16_kernels = proved([entry for entry in ALL if entry.facts["a"] != "f16"], with_types=False)
"""Kernels that stand for those of fp16, which have the same instructions."""
splitting_kernels = proved([entry for entry in ALL if can_split(entry)])

LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
DEPTHS = (1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 72, 127, 128, 129, 200, 321, 449, 1000)
PADDINGS = (0, 1, 3)
SPLITS = (1, 2, 3, 5)
BIASES = (None, *TYPES)

AXES = {
    "m": fixed("m").sample(LENGTHS, 6),
    "n": fixed("n").sample(LENGTHS, 6),
    "k": fixed("k").sample(DEPTHS, 6),
    "pad_a": PADDINGS,
    "pad_c": PADDINGS,
    "out": TYPES,
    "bias": BIASES,
    "scaled": SCALES,
    "splits": SPLITS,
}
ROWS = cover("shapes", "gemm", SCALE_KINDS, **AXES)
OTHER_STAGES = sorted({*ALL} - {entry for entry, _ in ROWS}, key=lambda entry: entry.name)
COVER = [
    pytest.param(entry, *axes.values(), number, id=f"{entry.name}-{axes}")
    for number, (entry, axes) in enumerate([*ROWS, *((e, ROWS[0][1]) for e in OTHER_STAGES)])
]


@pytest.mark.proof
@pytest.mark.parametrize(("entry", *AXES, "seed"), COVER)
def test_a_pairwise_cover_of_launches(
    entry: KernelEntry,
    m: int,
    n: int,
    k: int,
    pad_a: int,
    pad_c: int,
    out: torch.dtype,
    bias: torch.dtype | None,
    scaled: str,
    splits: int,
    seed: int,
) -> None:
    problem = random_problem(entry, (m, n, k), out, scaled, bias, seed)
    multiplies(entry, problem, (pad_a, pad_c), splits, seed)


EDGES = (
    ((1, 1, 1), (0, 0), torch.bfloat16, None, "none", 1),
    ((256, 256, 64), (0, 0), torch.float16, torch.float32, "both", 1),
    ((257, 257, 65), (1, 3), torch.float32, None, "rows", 2),
    ((255, 255, 63), (0, 0), torch.bfloat16, torch.bfloat16, "columns", 3),
)
"""Launches that every kernel has: shape, paddings, type of c, bias, scales and splits."""
RANDOM_LAUNCHES = 60


@bf16_kernels
def test_random_launches(entry: KernelEntry) -> None:
    """Each kernel gets other launches, since kernels share templates."""
    random = fixed(f"launches {entry.name}")

    def any_launch() -> tuple[Any, ...]:
        shape = random.choice(LENGTHS), random.choice(LENGTHS), random.choice(DEPTHS)
        paddings = random.choice(PADDINGS), random.choice(PADDINGS)
        values = (TYPES, BIASES, SCALES, SPLITS)
        return shape, paddings, *map(random.choice, values)

    for launch in (*EDGES, *(any_launch() for _ in range(RANDOM_LAUNCHES))):
        shape, paddings, out, bias, scaled, splits = launch
        seed = random.randrange(2**16)
        problem = random_problem(entry, shape, out, scaled, bias, seed)
        multiplies(entry, problem, paddings, splits, seed)


def multiplies(
    entry: KernelEntry, problem: Problem, paddings: tuple[int, int], splits: int, seed: int
) -> None:
    splits = splits if can_split(entry) else 1
    found = multiply(entry, problem, paddings, splits, seed)
    assert found.is_right()
    note_error(found.excess())
    m, n, k = problem.shape
    tile = entry.tile
    steps = math.ceil(k / tile.depth)
    executed = tiles_of(entry, m, n) * 2 * tile.rows * tile.columns * tile.depth * steps
    assert found.report.counters.matrix_flops == executed


@every_kernel
def test_integers_are_exact(entry: KernelEntry) -> None:
    """Sums of small integers are the same in any order, and scaling by powers of two rounds
    nothing. So c is the rounding of the one true value."""
    generator = torch.Generator().manual_seed(5)

    def integers(*size: int) -> torch.Tensor:
        return torch.randint(-8, 9, size, generator=generator)

    a, w = integers(130, 500).to(format_of(entry)), integers(270, 500).to(format_of(entry, "b"))
    of_a, of_b = (2.0 ** integers(count).float() for count in (130, 270))
    for out, bias in ((torch.float32, torch.bfloat16), (torch.bfloat16, torch.float16)):
        problem = Problem(a, w, out, of_a, of_b, integers(270).to(bias))
        for splits in (1, 3) if can_split(entry) else (1,):
            found = multiply(entry, problem, splits=splits)
            assert torch.equal(found.c, problem.exact()[0].to(out))


@proved([entry for entry in ALL if entry.facts["b"] == "e4m3"])
def test_every_fp8_code(entry: KernelEntry) -> None:
    """Each code is multiplied by every code. Each product is exact in float32, and a NaN activation
    gives NaN. (The packer leaves no NaN in weights.)"""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)[:, None]
    weights = codes.float().nan_to_num(0).to(codes.dtype)
    problem = Problem(codes.float().to(format_of(entry)), weights)
    found, exact = multiply(entry, problem).c, problem.exact()[0]
    assert torch.equal(found.isnan(), exact.isnan())
    assert torch.equal(found.nan_to_num(), exact.float().nan_to_num())


@every_kernel
@pytest.mark.parametrize("splits", [1, 2])
def test_many_steps(entry: KernelEntry, splits: int) -> None:
    """Waves that share the depth run different numbers of loop steps, and end in different ways."""
    problem = random_problem(entry, (40, 70, 39 * entry.tile.depth - 3), scales="both", seed=splits)
    assert multiply(entry, problem, splits=splits if can_split(entry) else 1).is_right()


@every_kernel
def test_whole_tiles_waste_nothing(entry: KernelEntry) -> None:
    m, n, k = 2 * entry.tile.rows, entry.tile.columns, 3 * entry.tile.depth
    problem = random_problem(entry, (m, n, k))
    assert multiply(entry, problem).report.counters.matrix_flops == 2 * m * n * k


@every_kernel
def test_wave_orders_are_bit_identical(entry: KernelEntry) -> None:
    """The grid has 3 x 3 tiles, and its last ones are ragged."""
    shape = 2 * entry.tile.rows + 8, 2 * entry.tile.columns + 30, 260
    problem = random_problem(entry, shape, torch.bfloat16, "both", torch.bfloat16)
    results = [multiply(entry, problem, (1, 0), seed=seed) for seed in range(3)]
    assert results[0].is_right()
    for other in results[1:]:
        assert torch.equal(other.c.view(torch.int16), results[0].c.view(torch.int16))


@splitting_kernels
def test_any_number_of_splits(entry: KernelEntry) -> None:
    """Some splits have no steps: there are more splits than steps, or 4 steps for 3 splits."""
    for steps, splits in ((4, 3), (2, 5), (7, 7), (1, 2)):
        problem = random_problem(entry, (33, 70, steps * entry.tile.depth - 3), scales="both")
        assert multiply(entry, problem, splits=splits).is_right()


@splitting_kernels
def test_split_orders_are_bit_identical(entry: KernelEntry) -> None:
    """Any workgroup of a tile may be the last one: the sums are added in the order of the
    splits."""
    problem = random_problem(entry, (50, 100, 500), torch.float32, "both", torch.float32)
    results = [multiply(entry, problem, splits=4, seed=seed) for seed in range(4)]
    assert results[0].is_right()
    for other in results[1:]:
        assert torch.equal(other.c.view(torch.int32), results[0].c.view(torch.int32))


@every_kernel
@pytest.mark.parametrize("splits", [1, 2])
def test_eight_tiles_go_round_the_xcds(entry: KernelEntry, splits: int) -> None:
    """If the number of workgroups is a multiple of 8, each tile is still computed once."""
    shape = 4 * entry.tile.rows, 2 * entry.tile.columns, 8
    problem = random_problem(entry, shape)
    assert multiply(entry, problem, splits=splits if can_split(entry) else 1).is_right()


@every_kernel
def test_outliers(entry: KernelEntry) -> None:
    """Magnitudes in every column reach from the smallest to the largest with finite products."""
    problem = random_problem(entry, (70, 40, 130), format_out(entry))
    a, w = problem.a.float(), problem.w.float()
    kind, of_w = torch.finfo(problem.a.dtype), torch.finfo(problem.w.dtype)
    a[:, ::13] *= math.sqrt(kind.max) / 64
    w[:, 5::13] *= of_w.smallest_normal
    w[::7, 1::13] = of_w.smallest_normal * of_w.eps  # subnormal
    found = multiply(entry, replace(problem, a=a.to(problem.a.dtype), w=w.to(problem.w.dtype)))
    assert found.is_right()


def format_out(entry: KernelEntry) -> torch.dtype:
    """A type of c that the sums of outliers fit: the operands' type, or bf16 for FP8."""
    dtype = format_of(entry)
    return dtype if dtype in TYPES else torch.bfloat16


@every_kernel
@pytest.mark.parametrize("splits", [1, 2])
def test_overflow_and_nan_stay_in_their_rows(entry: KernelEntry, splits: int) -> None:
    """Infinity and NaN occur in a and in its scales; infinity times zero is included."""
    dtype = format_of(entry)
    depth = 2 * entry.tile.depth + 16
    a, w = torch.ones(40, depth), torch.ones(70, depth)
    wanted = torch.full((40, 70), float(depth))
    a[7, 15], wanted[7] = math.nan, math.nan
    if dtype != torch.float8_e4m3fn:  # FP8 has no infinity
        a[9, 0], wanted[9] = -math.inf, -math.inf
        a[11, 0], a[11, 1], wanted[11] = -math.inf, math.inf, math.nan
    a_scale, b_scale = torch.ones(40), torch.ones(70)
    a_scale[20], wanted[20] = math.inf, math.inf
    a_scale[21], wanted[21] = math.nan, math.nan
    a[22], a_scale[22], wanted[22] = 0, math.inf, math.nan
    b_scale[33], wanted[:, 33] = math.nan, math.nan
    weights = w.to(format_of(entry, "b"))
    problem = Problem(a.to(dtype), weights, torch.bfloat16, a_scale, b_scale)
    found = multiply(entry, problem, splits=splits if can_split(entry) else 1).c.float()
    wanted = wanted.bfloat16().float()
    assert torch.equal(found.nan_to_num(nan=7e7), wanted.nan_to_num(nan=7e7))


@every_kernel
def test_what_f16_cannot_hold_is_infinite(entry: KernelEntry) -> None:
    """The largest whole number that float16 rounds to a finite value is 65519; 65520 becomes
    infinite."""
    a, w = (torch.ones(3, 8).to(format_of(entry, operand)) for operand in "ab")
    scales = torch.tensor([65519.0, 65520.0, -1e9]) / 8
    found = multiply(entry, Problem(a, w, torch.float16, a_scale=scales)).c
    assert found.tolist() == [[65504.0] * 3, [math.inf] * 3, [-math.inf] * 3]


@every_kernel
def test_zeros(entry: KernelEntry) -> None:
    """All of a, or the scales of all of b's rows, are zero: only the bias is left."""
    problem = random_problem(entry, (40, 70, 200), scales="both", bias=torch.float32)
    assert problem.b_scale is not None
    assert problem.bias is not None
    for changed in (
        replace(problem, a=torch.zeros(40, 200).to(problem.a.dtype)),
        replace(problem, b_scale=torch.zeros(70)),
    ):
        assert torch.equal(multiply(entry, changed).c, problem.bias.expand(40, 70))


@every_kernel
@pytest.mark.parametrize("splits", [1, 2])
def test_zero_depth_gives_the_bias(entry: KernelEntry, splits: int) -> None:
    a = torch.empty(40, 0, dtype=format_of(entry))
    w = torch.empty(50, 0, dtype=format_of(entry, "b"))
    bias = torch.arange(50).bfloat16()
    problem = Problem(a, w, torch.bfloat16, bias=bias)
    found = multiply(entry, problem, (1, 0), splits=splits if can_split(entry) else 1)
    assert torch.equal(found.c, bias.expand(40, 50))
    assert found.report.counters.matrix_flops == 0


@proved([entry for entry in ALL if scales_of_blocks(entry)])
@pytest.mark.parametrize("splits", [1, 2])
def test_scales_of_blocks_stay_in_their_blocks(entry: KernelEntry, splits: int) -> None:
    """Each block's scale is another power of two. Two scales are NaN, one of a row and one of 128
    columns."""
    m, n, k = 70, 300, 3 * 128 + 16
    a, w = torch.ones(m, k), torch.ones(n, k)
    of_a = 2.0 ** (torch.arange(m * 4) % 7).view(m, 4)
    of_w = 2.0 ** (torch.arange(3 * 4) % 5).view(3, 4)
    of_a[7, 2] = of_w[1, 3] = math.nan
    problem = Problem(
        a.to(format_of(entry)), w.to(format_of(entry, "b")), a_scale=of_a, b_blocks=of_w
    )
    found = multiply(entry, problem, splits=splits if can_split(entry) else 1).c
    wanted = problem.exact()[0].float()
    assert wanted[7].isnan().all()
    assert wanted[:, 128:256].isnan().all()
    assert torch.equal(found.nan_to_num(nan=-1), wanted.nan_to_num(nan=-1))
