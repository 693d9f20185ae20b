"""The quantize_fp8 kernels in the emulator: the reference's bits for every shape and value, and no
findings."""

from __future__ import annotations

import math

import pytest
import torch

from hk_backend.kernels import KernelEntry
from hk_backend.lab.toolchain.clocks import WAVE
from tests.kernels.cover import cover, covered, family, proved
from tests.kernels.quantize_launch import BLOCK, DTYPES, Case, Outcome, is_right, launch
from tests.seed import fixed

every_kernel = proved(family("quantize_fp8"))
LENGTHS = (
    *((0, k) for k in (1, 7, 8, 120, 128, 129, 136, 1000, 4099)),
    *((1, more) for more in (-8, 0, 1, 8, 2056)),
)
"""Widths: tiles of the kernel's columns, and elements more."""
PADDINGS = (0, 8, 3)
GRANULARITIES = ("tensor", "token", "token_block", "block")
CODE_MAX = 448.0


def quantizes(entry: KernelEntry, case: Case, seed: int = 0) -> Outcome:
    """Launches the kernel, and asserts a right result without findings."""
    outcome = launch(entry, case, seed)
    assert not outcome.report.findings, outcome.report.findings[0].message
    assert is_right(entry, case, outcome)
    return outcome


def numbers(entry: KernelEntry, m: int, k: int, seed: int) -> torch.Tensor:
    """Rows of numbers of many magnitudes, zeros of either sign among them.

    Then come special rows: zeros, the smallest numbers, a row with the largest number, one with an
    infinity, one with NaN.
    """
    dtype = DTYPES[str(entry.facts["x"])]
    random = torch.Generator().manual_seed(seed)
    spread = torch.exp(3 * torch.randn(m, k, generator=random))
    x = (torch.randn(m, k, generator=random) * spread).to(dtype)
    x[torch.rand(m, k, generator=random) < 0.02] = 0.0
    x[torch.rand(m, k, generator=random) < 0.02] = -0.0
    kind = torch.finfo(dtype)
    place = int(torch.randint(k, (1,), generator=random))
    for row, extreme in enumerate((kind.max, math.inf, -math.nan), 2):
        x[row : row + 1, place] = extreme
    x[5:6] = 0
    x[6:7] = (x[6:7].sign() * kind.smallest_normal * kind.eps * 3).to(dtype)
    return x


def scales_for(entry: KernelEntry, x: torch.Tensor, granularity: str) -> torch.Tensor | None:
    """Scales for a kernel that takes them: most in the range of x, others of any kind."""
    if entry.facts["scale"] != "given":
        return None
    m, k = x.shape
    blocks = -(-k // BLOCK)
    shape = {
        "tensor": (1,),
        "token": (m, 1),
        "token_block": (m, blocks),
        "block": (-(-m // BLOCK), blocks),
    }[granularity]
    scales = torch.rand(shape, generator=torch.Generator().manual_seed(m)) + 1e-3
    odd = torch.tensor([0.0, -0.5, 1e-40, 3e38, math.inf, math.nan])
    scales.view(-1)[2::3] = odd.repeat(scales.numel())[: len(scales.view(-1)[2::3])]
    return scales


def case_of(
    entry: KernelEntry,
    m: int,
    length: tuple[int, int],
    padding: int,
    granularity: str,
    scales_of_columns: bool = False,
) -> Case:
    tiles, more = length
    x = numbers(entry, m, tiles * entry.tile.columns + more, seed=m + more)
    given = scales_for(entry, x, granularity)
    return Case(x, given, granularity, padding, scales_of_columns=scales_of_columns)


AXES = {
    "m": (1, 2, 7),
    "length": LENGTHS,
    "padding": PADDINGS,
    "granularity": GRANULARITIES,
    "scales_of_columns": (False, True),
}
COVER = [
    pytest.param(entry, *axes.values(), id=f"{entry.name}-{axes}")
    for entry, axes in cover("shapes", "quantize_fp8", **AXES)
]


@pytest.mark.proof
@pytest.mark.parametrize(("entry", *AXES), COVER)
def test_a_pairwise_cover_of_shapes(
    entry: KernelEntry,
    m: int,
    length: tuple[int, int],
    padding: int,
    granularity: str,
    scales_of_columns: bool,
) -> None:
    quantizes(entry, case_of(entry, m, length, padding, granularity, scales_of_columns))


RANDOM_SHAPES = 60


@every_kernel
def test_random_shapes(entry: KernelEntry) -> None:
    random = fixed(f"shapes {entry.name}")
    for _ in range(RANDOM_SHAPES):
        m, k, padding = random.randint(1, 140), random.randint(1, 1200), random.randint(0, 20)
        granularity, seed = random.choice(GRANULARITIES), random.randrange(2**16)
        x = numbers(entry, m, k, seed)
        quantizes(entry, Case(x, scales_for(entry, x, granularity), granularity, padding), seed)


@covered("quantize_fp8", offset=(1, 2, 4, 8))
def test_rows_that_begin_anywhere(entry: KernelEntry, offset: int) -> None:
    x = numbers(entry, 3, 264, seed=offset)
    quantizes(entry, Case(x, scales_for(entry, x, "token"), "token", 8, offset))


@covered("quantize_fp8", x=("bf16", "f16"), scale=("token", "block", "given"))
def test_every_number_of_16_bits(entry: KernelEntry) -> None:
    """Numbers are sorted by magnitude, both signs of each, so that a group is of one kind."""
    codes = torch.arange(2**15, dtype=torch.int16)
    both = torch.stack([codes, codes | torch.tensor(-(2**15), dtype=torch.int16)], 1)
    x = both.view(DTYPES[str(entry.facts["x"])]).reshape(-1, 8 * BLOCK)
    for scale in (0.37, 1.0, 3e-38, 2e30) if entry.facts["scale"] == "given" else (None,):
        quantizes(entry, Case(x, None if scale is None else torch.tensor([scale])))


def between_codes() -> torch.Tensor:
    """The middles between neighbouring positive codes, at which rounding is decided."""
    codes = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    return (codes[1:] + codes[:-1]) / 2


@covered("quantize_fp8", x=("f32",), scale=("token", "block", "given"), magnitude=(0.03, 7.7, 3e9))
def test_quotients_beside_the_middle_of_two_codes(entry: KernelEntry, magnitude: float) -> None:
    """Quotients are the nearest numbers on either side: a quotient that is not rounded correctly
    shows."""
    tops = magnitude * (1 + torch.rand(40, generator=torch.Generator().manual_seed(1)))
    scales = tops / CODE_MAX
    middles = (between_codes()[None, :120] * scales[:, None]).float()
    around = [middles]
    for direction in (0.0, math.inf):
        beside = middles
        for _ in range(3):
            beside = torch.nextafter(beside, torch.tensor(direction))
            around.append(beside)
    x = torch.stack(around, 1).reshape(-1, 120)
    signs = torch.where(torch.arange(120) % 2 == 0, 1.0, -1.0)
    x = torch.cat([x * signs, tops.repeat_interleave(7)[:, None].expand(-1, 8)], 1)
    given = scales.repeat_interleave(7)[:, None] if entry.facts["scale"] == "given" else None
    outcome = quantizes(entry, Case(x, given, "token"))
    codes = outcome.codes.view(-1, 7, BLOCK)
    assert (codes[:, 1:] != codes[:, :1]).any()  # rounding differs beside the middles


@every_kernel
def test_wave_orders_are_bit_identical(entry: KernelEntry) -> None:
    case = case_of(entry, 7, (0, 2056), 8, "token_block")
    codes = [quantizes(entry, case, seed).codes for seed in range(4)]
    assert all(torch.equal(codes[0], other) for other in codes[1:])


@covered("quantize_fp8", scale=("token", "token_long", "block"))
def test_each_byte_of_x_is_read_once(entry: KernelEntry) -> None:
    """The registers hold a whole row; each code and scale is written once."""
    x = numbers(entry, 2, entry.tile.columns, seed=0)
    outcome = quantizes(entry, Case(x))
    counters = outcome.report.counters
    arguments = entry.arguments.size * x.shape[0] * entry.block // WAVE
    assert counters.bytes["global_write"] == outcome.codes.nbytes + outcome.scales.nbytes
    assert 0 <= counters.bytes["global_read"] - x.nbytes <= arguments
