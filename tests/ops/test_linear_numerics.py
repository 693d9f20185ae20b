"""Numbers that hurt a linear layer: infinities, NaN, denormals, cancellation, huge and tiny."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import linear
from hk_backend.terms.weight_format import FLOAT_DTYPES, FORMATS, ROTATED
from tests.ops.linear_cases import KINDS, Case, make
from tests.ops.linear_oracle import check, flushes_denormals

DYNAMIC = tuple(dict.fromkeys((f, a) for f, a, _ in KINDS if ROTATED.get(a, a) != "none"))
ONES = {"mxfp4": [0x22], "mxfp6_e2m3": [0x08, 0x82, 0x20], "mxfp6_e3m2": [0x08, 0x82, 0x20]}
"""Bytes of two and four packed codes, all of the same positive number."""
M = 20
"""More rows than the kernels for few rows take; tests of those are below."""


@pytest.mark.parametrize(("format", "activations", "scales"), KINDS)
def test_magnitudes(format: str, activations: str, scales: str, isa: str) -> None:
    case = Case(format, activations, scales, x_dtype=torch.float32)
    for magnitude in (1e-30, 1e-6, 1e4, 1e25):
        if format != "fp16" or magnitude < 1e3:
            check(case.but(m=2, magnitude=magnitude))
            check(case.but(m=M, magnitude=magnitude))


@pytest.mark.parametrize(("format", "activations"), DYNAMIC)
@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_what_is_not_finite_stays_in_its_row(
    value: float, format: str, activations: str, isa: str
) -> None:
    """A row that is quantised dynamically has no scale then; others do not notice."""
    layer = make(Case(format, activations, m=M))
    clean = layer.run()
    layer.x[4, 33] = value
    out = layer.run()
    if activations == "tensor":  # one scale for all
        assert out.isnan().all()
        return
    assert out[4].isnan().all()
    others = [row for row in range(M) if row != 4]
    assert torch.equal(out[others], clean[others])
    assert linear(layer.x[4], layer.pack()).isnan().all()
    layer.x = layer.x[3:9]
    assert check(layer).isnan().all(1).tolist() == [False, True, False, False, False, False]


@pytest.mark.parametrize("format", ["fp8_e4m3fn", "fp8_e4m3fnuz"])
def test_a_static_scale_saturates_infinities_and_keeps_nan(format: str, isa: str) -> None:
    layer = make(Case(format, "tensor", "tensor", m=M, static=True))
    layer.x[1, 5], layer.x[2, 6], layer.x[3] = math.inf, -math.inf, 1e30
    out = check(layer)
    assert out.isfinite().all()
    layer.x[7, 95] = math.nan
    out = check(layer)
    assert out.isnan().any(1).nonzero().tolist() == [[7]]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_not_finite_and_not_quantised(format: str, isa: str) -> None:
    """x as it is: infinity times a positive weight, a negative one, and zero; weights alike."""
    layer = make(Case(format, m=M))
    layer.x[4, 33], layer.x[5, 95], layer.x[6, 0] = math.inf, -math.inf, math.nan
    for rows in (slice(0, M), slice(3, 8)):
        check(replace(layer, x=layer.x[rows]))
    if not FORMATS[format].is_quantised:
        layer = make(Case(format, m=M))
        layer.weight[3, 5], layer.weight[4, 90], layer.weight[39, 0] = math.inf, -math.inf, math.nan
        layer.x[0] = 0.0  # 0 * inf is NaN
        for rows in (slice(0, M), slice(0, 3)):
            out = check(replace(layer, x=layer.x[rows]))
            assert out[0, 3].isnan()
            assert out[:, 39].isnan().all()


@pytest.mark.parametrize("format", FORMATS)
def test_infinities_meet_no_padding(format: str, isa: str) -> None:
    """K and N that fill no slab and no panel: 0 * inf must not come from what was padded."""
    layer = make(Case(format, m=3, n=1, k=FORMATS[format].k_multiple))
    ones = torch.tensor(ONES.get(format, [1.0])).to(layer.weight.dtype)
    layer.weight.copy_(ones.repeat(layer.weight.numel() // len(ones)).view_as(layer.weight))
    layer.x.fill_(math.inf)
    assert (reference.dequantize(layer.weight, format, layer.scales) > 0).all()  # no inf - inf
    assert torch.equal(layer.run().double(), torch.full((3, 1), math.inf, dtype=torch.float64))


@pytest.mark.parametrize("part", ["x", "weight"])
@pytest.mark.parametrize("format", FORMATS)
def test_denormals(format: str, part: str, isa: str) -> None:
    """Denormals count, unless the processor itself takes them for zero."""
    for dtype, m in itertools.product(FLOAT_DTYPES, (3, M)):
        layer = make(Case(format, m=m, x_dtype=dtype))
        of_x = part == "x" or FORMATS[format].is_quantised
        tensor = layer.x if of_x else layer.weight
        tensor.copy_(tensor.sign() * torch.finfo(tensor.dtype).smallest_normal / 4)
        out = check(layer)
        counted = 0 if flushes_denormals(layer) else out.numel() // 2 + 1
        assert out.count_nonzero() >= counted
        assert counted or not out.any()


def test_float16_overflows_to_infinity_where_it_must(isa: str) -> None:
    for m in (2, M):
        layer = make(Case("fp16", m=m, k=8, n=3, out_dtype=None))
        layer.x.fill_(1.0)
        layer.weight.zero_()
        layer.weight[0, 0], layer.weight[1, 0], layer.weight[2, 0] = 65504.0, 65504.0, -65504.0
        layer.weight[:, 1] = torch.tensor([15.0, 16.0, -16.0])  # 65520 is the tie, it rounds up
        out = layer.run()
        assert out[0].tolist() == [65504.0, math.inf, -math.inf]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_outputs_round_to_nearest_even(dtype: torch.dtype, isa: str) -> None:
    """Every tie between two numbers of the output, made of two exact float32 terms."""
    low = torch.arange(0, 2**16, 7, dtype=torch.int32).to(torch.int16).view(dtype).float()
    low = low[low.isfinite() & (low.abs() < torch.finfo(dtype).max / 4)]
    low = low[low.abs() > torch.finfo(dtype).smallest_normal * 4]
    high = low.to(dtype).view(torch.int16).add(1).view(dtype).float()
    tie = (low + high) / 2
    for m in (1, 20):
        x = torch.zeros(m, 8)
        x[:, 0] = 1.0
        layer = make(Case("fp32", m=m, n=len(tie), k=8, out_dtype=dtype))
        layer.x, layer.weight = x, torch.zeros(len(tie), 8)
        layer.weight[:, 0] = tie
        assert torch.equal(layer.run()[0], tie.to(dtype))
