"""The gemm kernels in the emulator: any m, n, k against float64, and nothing found.

Every byte that must not matter holds NaN: rows past k, C before the run, what lies between its
rows. Buffers end with the last byte that the contract of csrc/include/hk/args/gemm.hpp allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hk_backend.kernels import KernelEntry
from hk_backend.kernels.toolchain.sample_launch import Sample, run
from tests.kernels.attention_launch import DTYPES
from tests.kernels.cover import cover, family
from tests.ops.strategies import generated
from tests.seed import draw

TILE, STEP = 256, 64
MATRIX_ACCURACY = 2.0**-23  # of a float32 addition, whichever way the matrix unit rounds it

every_kernel = pytest.mark.parametrize("entry", family("gemm"), ids=lambda entry: entry.name)

LENGTHS = (1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
DEPTHS = (1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 72, 127, 128, 129, 200, 321)
PADDINGS = (0, 8, 24)


def type_of(entry: KernelEntry) -> torch.dtype:
    """Of its matrices, which share one."""
    return DTYPES[str(entry.facts["out"])]


@dataclass(frozen=True)
class Rows:
    """A matrix whose rows lie `stride` elements apart in a buffer that is NaN elsewhere."""

    buffer: torch.Tensor
    matrix: torch.Tensor  # a view of it
    stride: int

    @classmethod
    def of(cls, values: torch.Tensor, padding: int, last_row: int) -> Rows:
        """`last_row`: elements of it that are allocated."""
        rows, length = values.shape
        stride = -(-length // 8) * 8 + padding
        size = max(rows - 1, 0) * stride + last_row if length else 0
        buffer = torch.full((size,), math.nan, dtype=values.dtype)
        matrix = buffer.as_strided((rows, length), (stride, 1))
        matrix.copy_(values)
        return cls(buffer, matrix, stride)

    def others_untouched(self) -> bool:
        """Whether all but the matrix still has the bits of the NaN that was there before."""
        bits = self.buffer.view(torch.int16).clone()
        untouched = torch.full((), math.nan, dtype=self.buffer.dtype).view(torch.int16)
        bits.as_strided(self.matrix.shape, (self.stride, 1)).copy_(untouched)
        return bool((bits == untouched).all())


def launch(
    entry: KernelEntry,
    a: torch.Tensor,
    b: torch.Tensor,
    paddings: tuple[int, int, int] = (0, 0, 0),
    seed: int = 0,
) -> tuple[Rows, Any]:
    """C by the kernel, and the report."""
    (m, k), n = a.shape, b.shape[0]
    whole_chunks = -(-k // 8) * 8
    rows = {
        "a": Rows.of(a, paddings[0], whole_chunks),
        "b": Rows.of(b, paddings[1], whole_chunks),
        "c": Rows.of(torch.full((m, n), math.nan, dtype=a.dtype), paddings[2], n),
    }
    numbers = {f"{key}_row": value.stride for key, value in rows.items()}
    arrays = {key: value.buffer.view(torch.int16).numpy() for key, value in rows.items()}
    report = run(entry, Sample(arrays, {**numbers, "m": m, "n": n, "k": k}), seed)
    return rows["c"], report


def multiply(
    entry: KernelEntry,
    a: torch.Tensor,
    b: torch.Tensor,
    paddings: tuple[int, int, int] = (0, 0, 0),
    seed: int = 0,
) -> tuple[torch.Tensor, Any]:
    """The same of a shipped kernel; no finding, and nothing written outside of C."""
    c, report = launch(entry, a, b, paddings, seed)
    assert not report.findings, report.findings[0].message
    assert c.others_untouched()
    return c.matrix, report


def is_right(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """k float32 additions of exact products, then one rounding to the type."""
    wanted = a.double() @ b.double().T
    summed = a.shape[1] * MATRIX_ACCURACY * (a.double().abs() @ b.double().abs().T)
    kind = torch.finfo(found.dtype)
    rounded = kind.eps / 2 * (wanted.abs() + summed) + kind.smallest_normal * kind.eps / 2
    return bool(((found.double() - wanted).abs() <= summed + rounded).all())


def normal(dtype: torch.dtype, *shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


AXES = {
    "m": draw("m").sample(LENGTHS, 6),
    "n": draw("n").sample(LENGTHS, 6),
    "k": draw("k").sample(DEPTHS, 6),
    "pad_a": PADDINGS,
    "pad_b": PADDINGS,
    "pad_c": PADDINGS,
}
COVER = [
    pytest.param(entry, *axes.values(), number, id=f"{entry.name}-{axes}")
    for number, (entry, axes) in enumerate(cover("shapes", "gemm", **AXES))
]


@pytest.mark.parametrize(("entry", *AXES, "seed"), COVER)
def test_a_pairwise_cover_of_shapes(
    entry: KernelEntry, m: int, n: int, k: int, pad_a: int, pad_b: int, pad_c: int, seed: int
) -> None:
    multiplies(entry, m, n, k, (pad_a, pad_b, pad_c), seed)


@pytest.mark.slow
@every_kernel
@generated(100)
@given(
    m=st.sampled_from(LENGTHS),
    n=st.sampled_from(LENGTHS),
    k=st.sampled_from(DEPTHS),
    paddings=st.tuples(*[st.sampled_from(PADDINGS)] * 3),
    seed=st.integers(0, 2**16),
)
@example(m=1, n=1, k=1, paddings=(0, 0, 0), seed=0)
@example(m=256, n=256, k=64, paddings=(0, 0, 0), seed=0)
@example(m=257, n=257, k=65, paddings=(8, 0, 24), seed=1)
@example(m=255, n=255, k=63, paddings=(0, 8, 0), seed=2)
def test_generated_shapes(
    entry: KernelEntry, m: int, n: int, k: int, paddings: tuple[int, int, int], seed: int
) -> None:
    multiplies(entry, m, n, k, paddings, seed)


def multiplies(
    entry: KernelEntry, m: int, n: int, k: int, paddings: tuple[int, int, int], seed: int
) -> None:
    a = normal(type_of(entry), m, k, seed=seed)
    b = normal(type_of(entry), n, k, seed=seed + 1)
    found, report = multiply(entry, a, b, paddings, seed)
    assert is_right(found, a, b)
    tiles = math.ceil(m / TILE) * math.ceil(n / TILE)
    assert report.counters.matrix_flops == tiles * 2 * TILE * TILE * math.ceil(k / STEP) * STEP


@every_kernel
def test_integers_are_exact(entry: KernelEntry) -> None:
    """Sums of small integers are the same in any order; the result is their rounding."""
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randint(-8, 9, (rows, 200), generator=generator) for rows in (130, 270))
    found, _ = multiply(entry, a.to(type_of(entry)), b.to(type_of(entry)))
    assert torch.equal(found, (a @ b.T).double().to(type_of(entry)))


@every_kernel
def test_whole_tiles_waste_nothing(entry: KernelEntry) -> None:
    m, n, k = 512, 256, 192
    a, b = normal(type_of(entry), m, k, seed=1), normal(type_of(entry), n, k, seed=2)
    _, report = multiply(entry, a, b)
    assert report.counters.matrix_flops == 2 * m * n * k


@every_kernel
def test_wave_orders_are_bit_identical(entry: KernelEntry) -> None:
    """A 3 x 3 grid of tiles, its last ones ragged."""
    a, b = normal(type_of(entry), 520, 100, seed=3), normal(type_of(entry), 600, 100, seed=4)
    results = [multiply(entry, a, b, (8, 0, 0), seed)[0] for seed in range(4)]
    assert is_right(results[0], a, b)
    for other in results[1:]:
        assert torch.equal(other.view(torch.int16), results[0].view(torch.int16))


@every_kernel
def test_eight_tiles_go_round_the_xcds(entry: KernelEntry) -> None:
    """Where their number is a multiple of 8, each tile is still computed once."""
    a, b = normal(type_of(entry), 4 * TILE, 8, seed=3), normal(type_of(entry), 2 * TILE, 8, seed=4)
    assert is_right(multiply(entry, a, b)[0], a, b)


@every_kernel
def test_outliers(entry: KernelEntry) -> None:
    """Magnitudes from the smallest to where products are still finite, in every column."""
    kind = torch.finfo(type_of(entry))
    a, b = (normal(type_of(entry), rows, 130, seed=rows) for rows in (70, 40))
    a[:, ::13] *= math.sqrt(kind.max) / 64
    b[:, 5::13] *= kind.smallest_normal
    b[::7, 1::13] = kind.smallest_normal * kind.eps  # subnormal
    assert is_right(multiply(entry, a, b)[0], a, b)


@every_kernel
def test_overflow_and_nan_stay_where_they_are(entry: KernelEntry) -> None:
    a = torch.ones(40, 16, dtype=type_of(entry))
    b = torch.ones(50, 16, dtype=type_of(entry))
    a[3] = torch.finfo(type_of(entry)).max
    a[7, 15] = math.nan
    a[9, 0] = -math.inf
    found, _ = multiply(entry, a, b)
    wanted = torch.full((40, 50), 16.0)
    wanted[3], wanted[7], wanted[9] = math.inf, math.nan, -math.inf
    assert torch.equal(found.float().nan_to_num(nan=7e7), wanted.nan_to_num(nan=7e7))


@every_kernel
def test_zero_depth_gives_zeros(entry: KernelEntry) -> None:
    a = torch.empty(40, 0, dtype=type_of(entry))
    found, report = multiply(entry, a, a, (8, 8, 0))
    assert torch.equal(found, torch.zeros(40, 40, dtype=a.dtype))
    assert report.counters.matrix_flops == 0
