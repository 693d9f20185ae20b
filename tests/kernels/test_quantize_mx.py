"""The quantize_mx kernels in the emulator: the reference's bits for every shape and value, and no
findings."""

from __future__ import annotations

import math
import mmap

import pytest
import torch

from hk_backend.kernels import KernelEntry
from hk_backend.lab.toolchain.clocks import WAVE
from hk_backend.reference.linear import positive_elements
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK
from tests.kernels.cover import cover, covered, family, proved
from tests.kernels.quantize_mx_launch import DTYPES, Case, Outcome, is_right, launch
from tests.seed import fixed

every_kernel = proved(family("quantize_mx"))
ROTATIONS = (0, 32, 64, 128)
HEIGHTS = (1, 3, 15, 16, 17, 31, 32, 33, 47)
WIDTHS = (1, 2, 3, 4, 5, 8, 9, 15, 17, 65)
"""Columns, in units of the rotation, or of a block of 32."""
PADDINGS = (0, 8, 24)
TILES = 8
"""Tiles of a packed result, side by side, that have as many columns as a tile of rows."""


def quantizes(entry: KernelEntry, case: Case, seed: int = 0) -> Outcome:
    """Launches the kernel, and asserts a right result without findings."""
    outcome = launch(entry, case, seed)
    assert not outcome.report.findings, outcome.report.findings[0].message
    assert is_right(entry, case, outcome)
    return outcome


def dtype_of(entry: KernelEntry) -> torch.dtype:
    return DTYPES[str(entry.facts["x"])]


def numbers(entry: KernelEntry, m: int, k: int, seed: int) -> torch.Tensor:
    """Rows of numbers of many magnitudes, zeros of either sign among them.

    Special rows come from the fourth on: the smallest numbers, the largest ones, zeros of either
    sign. Some blocks hold an infinity, some NaN.
    """
    dtype = dtype_of(entry)
    random = torch.Generator().manual_seed(seed)
    spread = torch.exp(2 * torch.randn(m, k // MX_BLOCK, 1, generator=random))
    x = torch.randn(m, k // MX_BLOCK, MX_BLOCK, generator=random) * spread
    x *= torch.exp2(torch.randint(-9, 2, x.shape, generator=random).float())
    x[torch.rand(x.shape, generator=random) < 0.05] = 0.0
    x[torch.rand(x.shape, generator=random) < 0.05] = -0.0
    x[torch.rand(x.shape[:2], generator=random) < 0.05] = 0.0
    kind = torch.finfo(dtype)
    x[3:4] *= kind.smallest_normal
    x[4:5] = torch.where(x[4:5] < 0, -kind.max, kind.max) * torch.rand(
        x[4:5].shape, generator=random
    )
    x[5:6] = x[5:6].sign() * kind.smallest_normal * kind.eps * 3
    x[6:7] = -0.0
    x = x.clamp(-kind.max, kind.max).view(m, k).to(dtype)
    for value in (math.inf, -math.inf, math.nan, -math.nan):
        x[torch.rand(m, k, generator=random) < 0.2 / k] = value
    return x


def case_of(
    entry: KernelEntry,
    m: int,
    width: int,
    padding: int,
    rotation: int,
    round_scale_even: bool,
    packed: bool,
) -> Case:
    k = width * max(rotation, MX_BLOCK)
    x = numbers(entry, m, k, seed=m + width)
    return Case(x, rotation, round_scale_even, packed, padding)


AXES = {
    "m": HEIGHTS,
    "width": WIDTHS,
    "padding": PADDINGS,
    "rotation": ROTATIONS,
    "round_scale_even": (False, True),
    "packed": (False, True),
}
COVER = [
    pytest.param(entry, *axes.values(), id=f"{entry.name}-{axes}")
    for entry, axes in cover("shapes", "quantize_mx", **AXES)
]


@pytest.mark.proof
@pytest.mark.parametrize(("entry", *AXES), COVER)
def test_a_pairwise_cover_of_shapes(
    entry: KernelEntry,
    m: int,
    width: int,
    padding: int,
    rotation: int,
    round_scale_even: bool,
    packed: bool,
) -> None:
    quantizes(entry, case_of(entry, m, width, padding, rotation, round_scale_even, packed))


RANDOM_SHAPES = 25


@every_kernel
def test_random_shapes(entry: KernelEntry) -> None:
    random = fixed(f"shapes {entry.name}")
    for _ in range(RANDOM_SHAPES):
        m, width, padding = random.randint(1, 100), random.randint(1, 12), 8 * random.randint(0, 5)
        rotation, seed = random.choice(ROTATIONS), random.randrange(2**16)
        flags = random.random() < 0.5, random.random() < 0.5
        quantizes(entry, case_of(entry, m, width, padding, rotation, *flags), seed)


@covered("quantize_mx", x=("bf16", "f16"), round_scale_even=(False, True), packed=(False, True))
def test_every_number_of_16_bits(entry: KernelEntry, round_scale_even: bool, packed: bool) -> None:
    """Numbers are sorted by magnitude, both signs of each, so that a block is of one kind."""
    codes = torch.arange(2**15, dtype=torch.int16)
    both = torch.stack([codes, codes | torch.tensor(-(2**15), dtype=torch.int16)], 1)
    x = both.view(dtype_of(entry)).reshape(64, -1)
    quantizes(entry, Case(x, 0, round_scale_even, packed))


def edges(format: str) -> torch.Tensor:
    """Positive numbers of a format and the middles between neighbours, at which rounding is
    decided."""
    facts = FORMATS[format]
    if facts.bits == 8:
        elements = torch.arange(0x7F, dtype=torch.uint8).view(facts.dtype).double()
    else:
        elements = positive_elements(format)
    return torch.cat([elements, (elements[1:] + elements[:-1]) / 2]).float()


@covered("quantize_mx", x=("f32",), exponent=(0, -100, 90), round_scale_even=(False, True))
def test_numbers_beside_the_middle_of_two_codes(
    entry: KernelEntry, exponent: int, round_scale_even: bool
) -> None:
    """A block's first element pins its scale; the others are the nearest numbers on either side."""
    format = str(entry.facts["format"])
    middles, largest = edges(format), FORMATS[format].max
    up, down = torch.tensor(math.inf), torch.tensor(-math.inf)
    near = torch.cat([middles, middles.nextafter(up), middles.nextafter(down)])
    near = torch.cat([near, -near])
    near = near[near.abs() < largest]
    blocks = torch.full((-(-len(near) // 31), MX_BLOCK), largest)
    blocks[:, 1:] = torch.nn.functional.pad(near, (0, -len(near) % 31)).view(-1, 31)
    quantizes(entry, Case(blocks * 2.0**exponent, 0, round_scale_even))


@covered("quantize_mx", x=("f32",), round_scale_even=(False, True))
def test_largest_magnitudes_at_every_exponent(entry: KernelEntry, round_scale_even: bool) -> None:
    """A scale is decided where the largest magnitude rounds up, also at float32's last exponent."""
    kept = FORMATS[str(entry.facts["format"])].mantissa_bits
    tie = 2 - 2.0 ** -(kept + 1)  # rounds up to 2
    tops = torch.tensor([1.0, 1.5, tie, tie - 2.0**-23, 2 - 2.0**-23], dtype=torch.float64)
    exponents = torch.exp2(torch.arange(-149, 128).double())
    largest = (tops * exponents[:, None]).float().flatten()
    blocks = largest[:, None] * torch.linspace(-1, 1, MX_BLOCK)
    quantizes(entry, Case(blocks.reshape(5, -1), 0, round_scale_even))


@covered("quantize_mx", rotation=ROTATIONS[1:], packed=(False, True))
def test_rotations_past_the_range(entry: KernelEntry, rotation: int, packed: bool) -> None:
    """Sums past float32's range break the blocks that they are in, infinities all of a group."""
    dtype = dtype_of(entry)
    largest = torch.finfo(dtype).max
    x = torch.randn(20, 384, generator=torch.Generator().manual_seed(3)).to(dtype)
    x[1, :32], x[2, 32:96], x[3, :256] = largest, -largest, largest
    x[4, ::2] = largest
    x[5, 70], x[6, 383], x[7, 129] = math.inf, -math.inf, math.nan
    x[8] = 0.0
    x[9, ::2], x[9, 1::2] = 1.0, -1.0  # differences that vanish
    quantizes(entry, Case(x, rotation, True, packed))


@every_kernel
def test_wave_orders_are_bit_identical(entry: KernelEntry) -> None:
    case = case_of(entry, 40, 6, 8, 64, True, True)
    codes = [quantizes(entry, case, seed).codes for seed in range(4)]
    assert all(torch.equal(codes[0], other) for other in codes[1:])


@covered("quantize_mx", packed=(False, True), rotation=(0, 128))
def test_each_byte_is_read_and_written_once(
    entry: KernelEntry, packed: bool, rotation: int
) -> None:
    """The tiles are whole: the counters know accesses past the ends, too."""
    m, k = entry.tile.rows, TILES * entry.tile.columns
    outcome = quantizes(entry, Case(numbers(entry, m, k, seed=0), rotation, True, packed))
    counters = outcome.report.counters
    arguments = entry.arguments.size * TILES * entry.block // WAVE
    read = m * k * dtype_of(entry).itemsize
    assert counters.bytes["global_write"] == outcome.codes.nbytes + outcome.scales.nbytes
    assert 0 <= counters.bytes["global_read"] - read <= arguments


@covered("quantize_mx", x=("f32",), packed=(False, True))
def test_rows_that_are_far_apart(entry: KernelEntry, packed: bool) -> None:
    """The last row begins past 4 GiB; the memory between the rows is never touched."""
    m, k, stride = 35, 64, 2**25 - 8
    values = numbers(entry, m, k, seed=7)
    size = ((m - 1) * stride + k) * values.itemsize
    assert size > 2**32
    whole = torch.frombuffer(mmap.mmap(-1, size), dtype=values.dtype)
    x = whole.as_strided((m, k), (stride, 1))
    x.copy_(values)
    quantizes(entry, Case(x, 32, True, packed))
