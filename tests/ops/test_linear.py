"""`linear` against its definition: every format, kind of activations and scales, on every ISA."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hk_backend import reference
from hk_backend.ops import linear
from hk_backend.reference.linear import pack_bits
from hk_backend.reference.rotation import rotated
from hk_backend.terms.weight_format import FLOAT_DTYPES, FORMATS, MX_BLOCK, ROTATED
from tests.ops.linear_cases import (
    KINDS,
    WEIGHT_LAYOUTS,
    X_LAYOUTS,
    Case,
    Layer,
    laid_out,
    make,
    random_weight,
)
from tests.ops.linear_oracle import SMALLEST_NORMAL, check, flushes_denormals
from tests.ops.strategies import generated

ROWS = (0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 15, 16, 17, 18, 24, 31, 33, 48, 63, 64, 65)
"""Numbers of rows around the edges of register tiles, of the skinny kernel, and of row blocks."""


SHAPES = [
    *((m, 56, 64) for m in ROWS),
    *((m, n, 64) for n in (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 65, 129) for m in (1, 4, 20)),
    *((m, 33, k) for k in (8, 16, 24, 40, 56, 120, 136, 264, 520) for m in (1, 3, 20)),
    *((m, 33, k) for k in (32, 64, 96, 192, 256, 512, 1056) for m in (1, 3, 20)),
]
"""The last two rows are multiples of 8 and of 32 around slabs, scale blocks and cuts of K."""


@pytest.mark.parametrize("format", FORMATS)
def test_shapes(format: str, isa: str) -> None:
    for m, n, k in SHAPES:
        if k % FORMATS[format].k_multiple == 0:
            check(Case(format, m=m, n=n, k=k, bias=torch.float32, seed=m))


@pytest.mark.parametrize(("format", "activations", "scales"), KINDS)
def test_large(format: str, activations: str, scales: str) -> None:
    """The layer has several blocks of rows, of columns and of K."""
    check(Case(format, activations, scales, m=260, n=300, k=1120))


@pytest.mark.parametrize(("format", "activations", "scales"), KINDS)
def test_few_rows_of_a_large_weight(format: str, activations: str, scales: str, isa: str) -> None:
    """The layer has several groups of rows, bands of panels and pieces of K, with short ends."""
    for m in (7, 9):
        check(Case(format, activations, scales, m=m, n=130, k=1120))


def whole_numbers(case: Case) -> Layer:
    """A layer whose every partial sum float32 holds: a whole number of 1/64 below 2^18. So a kernel
    must give the exact result in any order of sums. Rotated numbers are whole, too: in blocks of 64
    the factor is 1/8, and K is brought to these."""
    random = torch.Generator().manual_seed(case.seed)
    if case.activations in ROTATED:
        case = case.but(rotation=64, k=-(-case.k // 64) * 64, x_dtype=torch.float32)
    layer, format = make(case.but(n=1)), FORMATS[case.format]
    weight = torch.randint(-2, 3, (case.n, case.k), generator=random).float()
    if format.is_mx:
        layer.weight, layer.scales = reference.quantize_mx(weight, case.format)
        assert layer.scales is not None
        spread = torch.randint(-1, 2, layer.scales.shape, generator=random)
        layer.scales = (layer.scales.int() + spread).to(torch.uint8)
    else:
        layer.weight = weight.to(format.dtype)
        _, scales = random_weight(case.format, case.n, case.k, case.scale_kind, random)
        layer.scales = None if scales is None else 2.0 ** (scales * 60).round()
    x = torch.randint(-2, 3, (case.m, case.k), generator=random).float()
    x[:, ::32] = 4.0 if format.is_mx else format.quantised_max or 1.0  # scales are powers of two
    layer.x = (rotated(x, case.rotation) if case.rotation else x).to(layer.x.dtype)
    return layer


@pytest.mark.parametrize(("format", "activations", "scales"), KINDS)
def test_long_sums_of_whole_numbers_are_exact(
    format: str, activations: str, scales: str, isa: str
) -> None:
    """A worst-case bound of a long sum would not see one term missing: this does."""
    for m, n, k in ((1, 40, 4128), (5, 33, 4160), (17, 40, 1056), (70, 130, 544)):
        layer = whole_numbers(Case(format, activations, scales, m=m, n=n, k=k, seed=m))
        assert torch.equal(layer.run().double(), layer.exact())


@pytest.mark.parametrize("x_dtype", FLOAT_DTYPES)
@pytest.mark.parametrize(
    ("format", "activations"),
    [*((name, "none") for name in ("bf16", "fp16", "fp32", "mxfp4")), ("fp8_e4m3fn", "token")],
)
def test_dtypes(format: str, activations: str, x_dtype: torch.dtype, isa: str) -> None:
    for out_dtype, bias in itertools.product((*FLOAT_DTYPES, None), repeat=2):
        case = Case(format, activations, x_dtype=x_dtype, out_dtype=out_dtype, bias=bias)
        check(case.but(m=2))
        check(case.but(m=19))


@pytest.mark.parametrize("layout", X_LAYOUTS)
def test_strides_of_x(layout: str, isa: str) -> None:
    """NaN lies between the rows and the channels."""
    for format, activations in (("bf16", "none"), ("fp8_e4m3fn", "token"), ("mxfp6_e2m3", "mx")):
        for m in (1, 6, 30):
            check(Case(format, activations, m=m, x_layout=layout))


@pytest.mark.parametrize("m", [1, 5, 30])
def test_views_of_one_row_and_of_a_bias(m: int) -> None:
    """`x` with a row stride of zero, a bias whose neighbours are apart."""
    layer = make(Case(m=1, bias=torch.float16))
    assert layer.bias is not None
    apart = torch.full((40, 3), math.nan, dtype=torch.float16)
    apart[:, 1] = layer.bias
    layer.bias, layer.x = apart[:, 1], layer.x.expand(m, -1)
    check(layer)


@pytest.mark.parametrize("format", FORMATS)
def test_strides_of_the_weight(format: str, isa: str) -> None:
    """vLLM keeps FP8 weights as transposed views."""
    for layout in WEIGHT_LAYOUTS:
        check(Case(format, m=3, weight_layout=layout))


@pytest.mark.parametrize("format", ["mxfp8", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4"])
def test_strides_and_dtype_of_mx_scales(format: str) -> None:
    layer = make(Case(format, m=3))
    assert layer.scales is not None
    want = layer.run()
    layer.scales = laid_out(layer.scales, "rows apart").view(torch.float8_e8m0fnu)
    assert torch.equal(layer.run(), want)
    layer.scales = laid_out(layer.scales.view(torch.uint8), "transposed")
    assert torch.equal(layer.run(), want)


def every_code(format: str, n: int, k: int) -> torch.Tensor:
    """A weight in which each place of a panel meets each code but NaN."""
    facts = FORMATS[format]
    place = torch.arange(n)[:, None] * 37 + torch.arange(k)
    if not facts.is_quantised:
        values = torch.randn(n, k, generator=torch.Generator().manual_seed(6)) * 2.0 ** (place % 40)
        return values.clamp(-6e4, 6e4).to(facts.dtype)
    codes = place % 2**facts.bits
    if facts.bits < 8:
        return pack_bits(codes, facts.bits)
    weight = codes.to(torch.uint8).view(facts.dtype)
    return torch.where(weight.float().isnan(), torch.zeros(()), weight.float()).to(facts.dtype)


@pytest.mark.parametrize(("format", "scales"), dict.fromkeys((f, s) for f, _, s in KINDS))
def test_every_code_at_every_place_comes_out_exactly(format: str, scales: str, isa: str) -> None:
    """x has a single 1 in each row: an output is one element times its scale, rounded once."""
    n, k = 70, 256
    layer = make(Case(format, scale_kind=scales, n=n, k=k))
    layer.weight = every_code(format, n, k)
    if FORMATS[format].is_mx:
        layer.scales = every_scale(format, n, k)
    x_dtype = FORMATS[format].dtype if not FORMATS[format].is_quantised else torch.bfloat16
    weight = layer.pack()
    one_hot = torch.eye(k, dtype=x_dtype)
    want = reference.dequantize(layer.weight, format, layer.scales).float()
    every_row = [slice(0, k)]
    few_rows = [slice(first, first + 8) for first in range(0, k, 64)]
    middling = [slice(first, first + 16) for first in range(0, k, 64)]
    for rows in every_row + middling + few_rows:
        layer.x = one_hot[rows]
        exact = want[:, rows].clone()
        if flushes_denormals(layer):
            exact[exact.abs() < SMALLEST_NORMAL] = 0
        assert torch.equal(linear(layer.x, weight, out_dtype=torch.float32).T, exact)
    for row in range(0, k, 11):
        assert torch.equal(linear(one_hot[row], weight, out_dtype=torch.float32), want[:, row])


def every_scale(format: str, n: int, k: int) -> torch.Tensor:
    """Each e8m0 code that the format may have, from the denormal 2^-127 on."""
    codes = torch.arange(n * k // MX_BLOCK) * 5 % (FORMATS[format].largest_scale_code + 1)
    return codes.view(n, k // MX_BLOCK).to(torch.uint8)


def test_axes_of_rows_keep_their_shape() -> None:
    layer = make(Case(m=12, k=64))
    want = layer.run()
    for shape in ((3, 4), (2, 3, 2), (1, 12), (12, 1)):
        layer.x = layer.x.reshape(*shape, 64)
        assert torch.equal(layer.run(), want.view(*shape, 40))
    layer.x = layer.x.reshape(12, 64)[0]
    assert check(layer).shape == (40,)
    for format, activations, _ in KINDS:
        layer = make(Case(format, activations))
        for shape in ((0, 96), (2, 0, 96)):
            layer.x = torch.empty(shape, dtype=layer.x.dtype)
            assert layer.run().shape == (*shape[:-1], 40)


@st.composite
def cases(draw: DrawFn) -> Case:
    """Any layer that the operator serves, small enough for the reference."""
    format, activations, scales = draw(st.sampled_from(KINDS))
    multiple = FORMATS[format].k_multiple
    return Case(
        format,
        activations,
        scales,
        m=draw(st.one_of(st.sampled_from(ROWS), st.integers(0, 70), st.sampled_from((200, 289)))),
        n=draw(st.one_of(st.integers(1, 80), st.sampled_from((128, 129, 200)))),
        k=draw(st.integers(1, 400 // multiple)) * multiple,
        x_dtype=draw(st.sampled_from(FLOAT_DTYPES)),
        out_dtype=draw(st.sampled_from((*FLOAT_DTYPES, torch.float32, None))),
        bias=draw(st.sampled_from((None, *FLOAT_DTYPES))),
        static=activations == "tensor" and draw(st.booleans()),
        x_layout=draw(st.sampled_from(X_LAYOUTS)),
        weight_layout=draw(st.sampled_from(WEIGHT_LAYOUTS)),
        magnitude=draw(st.sampled_from((1e-3, 1.0, 20.0))),
        seed=draw(st.integers(0, 2**16)),
    )


@given(case=cases())
@generated(examples=60)
def test_generated(case: Case, isa: str) -> None:
    check(case)
