"""Many rows of mx activations beside an mx weight, in its format or a wider one: products that may
be added up in integers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from hk_backend import _cpu, reference
from hk_backend.ops import linear
from hk_backend.reference.linear import pack_bits, round_activations
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK, Format, rotated_activations
from tests.ops.conftest import ISAS
from tests.ops.linear_cases import Case, Layer, make
from tests.ops.linear_oracle import (
    SMALLEST_NORMAL,
    adds_up_in_integers,
    check,
    flushes_denormals,
)
from tests.ops.test_linear import every_code, every_scale, whole_numbers

PAIRS = tuple(
    (format, rounding)
    for format, facts in FORMATS.items()
    for rounding in facts.roundings
    if facts.is_mx and rounding != "none"
)
"""Formats of weights, and how x is rounded."""
PAIR = pytest.mark.parametrize(("format", "rounding"), PAIRS)
BLOCKS = pytest.mark.parametrize("rotation", [0, 32])
ROWS = (*range(17, 32), 35, 36, 37, 61, 64, 128, 255, 257)
"""Numbers of rows above the kernels for few: every register tile, and blocks of rows."""


EACH_WAY = pytest.mark.parametrize(
    ("isa", "products"), [*((isa, True) for isa in ISAS), ("avx512", False)], indirect=True
)
"""Every instruction set, and AVX-512 as on a processor without dot products."""


@pytest.fixture
def products(request: pytest.FixtureRequest, isa: str) -> Iterator[bool]:
    """Whether dot products are used where there are any."""
    before = _cpu.use_dot_products(request.param)
    yield request.param
    _cpu.use_dot_products(before)


def x_format(format: str, rounding: str) -> Format:
    """The format that x is rounded to."""
    found = FORMATS[format].of_activations(rounding)
    assert found is not None
    return found


def largest(m: int, n: int, k: int, format: str, rounding: str, period: int) -> Layer:
    """A layer of the formats' largest elements. Signs of x change after `period` channels and with
    its rows. Signs of the weight change with its rows and, in every second one, as in x."""
    layer = make(Case(format, rounding, m=m, n=n, k=k, x_dtype=torch.float32))
    bits = FORMATS[format].bits
    top = 0x7E if format == "mxfp8" else 2 ** (bits - 1) - 1
    along = (torch.arange(k) // period) % 2
    rows, columns = torch.arange(m)[:, None], torch.arange(n)[:, None]
    layer.x = x_format(format, rounding).max * (1.0 - 2.0 * ((along + rows) % 2))
    negative = (along * (columns // 2 % 2) + columns) % 2
    codes = top + negative * 2 ** (bits - 1)
    layer.weight = (
        codes.to(torch.uint8).view(torch.float8_e4m3fn) if bits == 8 else pack_bits(codes, bits)
    )
    layer.scales = torch.full((n, k // MX_BLOCK), 127, dtype=torch.uint8)
    return layer


@PAIR
@pytest.mark.parametrize("period", [1, 2, 3, 4, 8, 16, 32, 1 << 20])
@EACH_WAY
def test_the_largest_elements_of_both_signs(
    format: str, rounding: str, period: int, products: bool
) -> None:
    """No register may cut off sums: such a kernel is far from the exact result."""
    for m, n, k in ((1, 33, 96), (9, 40, 544), (17, 33, 96), (70, 40, 544)):
        layer = largest(m, n, k, format, rounding, period)
        exact = layer.exact()
        unit = FORMATS[format].max * x_format(format, rounding).max
        assert torch.equal(exact / unit, (exact / unit).round())
        assert exact.abs().max() == k * unit
        assert torch.equal(layer.run().double(), exact)


@PAIR
@EACH_WAY
def test_every_code_at_every_place(format: str, rounding: str, products: bool) -> None:
    """Each row of x has a single element: an output is a product of two, exactly."""
    n, k = 70, 256
    layer = make(Case(format, rounding, n=n, k=k, x_dtype=torch.float32))
    layer.weight = every_code(format, n, k)
    layer.scales = every_scale(format, n, k)
    want = reference.dequantize(layer.weight, format, layer.scales)
    layer.x = torch.eye(k)
    if flushes_denormals(layer):
        want[want.abs() < SMALLEST_NORMAL] = 0
    weight = layer.pack()
    for element in (1.0, -1.5, 3.0):
        x = element * torch.eye(k)
        exact = (element * want).T.float()
        assert torch.equal(linear(x, weight), exact)
        for few in (slice(0, 1), slice(37, 46)):
            assert torch.equal(linear(x[few], weight), exact[few])


@PAIR
@BLOCKS
@EACH_WAY
def test_every_number_of_rows(format: str, rounding: str, rotation: int, products: bool) -> None:
    """Whole numbers: every bit, for every register tile, with tails of columns and of K."""
    activations = rotated_activations(rounding, rotation)
    for m in ROWS:
        k = (32, 96, 512, 544)[m % 4]
        layer = whole_numbers(Case(format, activations, m=m, n=(1, 15, 33, 72)[m % 3], k=k, seed=m))
        assert torch.equal(layer.run().double(), layer.exact())


@PAIR
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@EACH_WAY
def test_a_block_that_is_not_finite(
    format: str, rounding: str, value: float, products: bool
) -> None:
    """A row with such a block is NaN in every column; the others keep their bits."""
    layer = make(Case(format, rounding, m=70, n=40, k=544))
    clean = layer.run()
    layer.x[41, 543] = value
    out = layer.run()
    assert out[41].isnan().all()
    others = [row for row in range(70) if row != 41]
    assert torch.equal(out[others], clean[others])


@PAIR
@EACH_WAY
def test_blocks_of_zeros_and_the_ends_of_the_scales(
    format: str, rounding: str, products: bool
) -> None:
    """Scale codes are 0 for zeros and for the least numbers, and near the largest beside scales of
    the weight that bring the products back."""
    for m in (1, 9, 40):
        layer = make(Case(format, rounding, m=m, n=33, k=256, x_dtype=torch.float32))
        assert layer.scales is not None
        layer.x[:, :32] = 0.0
        layer.x[:, 32:64] *= 2.0**-140
        layer.x[:, 64:96] *= 2.0**110
        layer.x[:, 96:128] *= 2.0**-110
        layer.scales[:, 1] = FORMATS[format].largest_scale_code
        layer.scales[:, 2] = 0
        layer.scales[:, 3] = 230
        out = check(layer)
        assert out.isfinite().all()
        layer.x[:, 64:96] = 0.0
        layer.x[:, 128:] = 0.0
        check(layer)


@pytest.mark.parametrize("rounding", ["mx", "mxfp6_e2m3"])
@BLOCKS
def test_few_rows_and_many_have_the_same_bits(rounding: str, rotation: int, isa: str) -> None:
    """Few rows beside mxfp4 are integers, too: scales and sums come in the same order."""
    if isa == "portable":  # floats
        return
    activations = rotated_activations(rounding, rotation)
    layer = make(Case("mxfp4", activations, m=40, n=72, k=1120, magnitude=20.0))
    many = layer.run()
    layer.x = layer.x[:16]
    assert torch.equal(layer.run(), many[:16])


def has_the_bits_of_integers(x_format: str, isa: str) -> bool:
    """Whether a level multiplies in integers. AVX-512 without dot products is no faster in words
    than in floats. AMX multiplies bfloat16, but adds up 32 elements, here exactly, before they meet
    the sum."""
    dot_products = _cpu.use_dot_products(True)
    _cpu.use_dot_products(dot_products)
    wide = isa in ("avx512", "avx512_bf16")
    return isa in ("avx2", "amx") or (wide and (x_format != "mxfp6_e3m2" or dot_products))


@pytest.mark.parametrize(
    ("format", "rounding"), [pair for pair in PAIRS if adds_up_in_integers(*pair)]
)
@BLOCKS
@EACH_WAY
def test_the_bits_of_integers(
    format: str, rounding: str, rotation: int, isa: str, products: bool
) -> None:
    """Sums over 32 elements are exact, and are added up with one rounding each. Floats round after
    each product, so that nothing but integers has these bits."""
    activations = rotated_activations(rounding, rotation)
    layer = make(Case(format, activations, m=70, n=72, k=1152, x_dtype=torch.float32))
    layer.x[:, :128] *= 2.0**12  # so that sums with what follows are rounded
    x = round_activations(layer.x, format, activations, rotation=layer.rotation)
    weight = reference.dequantize(layer.weight, format, layer.scales)
    want = torch.zeros(70, 72)
    for slab in range(0, 1152, MX_BLOCK):
        exact = x[:, slab : slab + MX_BLOCK] @ weight[:, slab : slab + MX_BLOCK].T
        want = (want.double() + exact).float()
    in_integers = has_the_bits_of_integers(x_format(format, rounding).name, isa)
    assert torch.equal(layer.run(), want) == in_integers
