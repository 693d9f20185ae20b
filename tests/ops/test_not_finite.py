"""Quantisers of numbers that are too large, infinite or NaN give bytes worked out by hand.

Other libraries cannot say: torch 2.13 converts an infinity to the largest float8_e4m3fn, torch 2.7
and ml_dtypes 0.6 to NaN; a NaN becomes -0 in the 4 and 6-bit types of ml_dtypes 0.6.
"""

from __future__ import annotations

import math

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import quantize_fp8, quantize_mx
from hk_backend.ops.mx_elements import nearest, packed
from hk_backend.terms.weight_format import FLOAT_DTYPES, FORMATS, MX_BLOCK
from tests.ops.test_quantize import ON_GPUS_TOO, everywhere

INF, NAN = math.inf, math.nan
E4M3, FNUZ = torch.float8_e4m3fn, torch.float8_e4m3fnuz
LARGE = (448.0, 480.0, 60000.0, INF, -480.0, -INF, NAN, -NAN)
GIVEN = {
    E4M3: (0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0xFE, 0x7F, 0x7F),
    # 224 is the largest that is quantised to, though 240 exists
    FNUZ: (0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0xFE, 0x80, 0x80),
}
"""`LARGE` under a given scale of 1."""
DYNAMIC = {
    (2.0, -3.0, INF): (INF, {E4M3: (0x00, 0x80, 0x7F), FNUZ: (0x00, 0x00, 0x80)}),
    (2.0, -3.0, -INF): (INF, {E4M3: (0x00, 0x80, 0x7F), FNUZ: (0x00, 0x00, 0x80)}),
    (2.0, -3.0, NAN): (NAN, {E4M3: (0x7F, 0x7F, 0x7F), FNUZ: (0x80, 0x80, 0x80)}),
    (INF, NAN, 1.0): (NAN, {E4M3: (0x7F, 0x7F, 0x7F), FNUZ: (0x80, 0x80, 0x80)}),
}
"""Rows, and the scale and codes that they get; code times scale is NaN in each."""


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@everywhere("token", "token_block")
def test_fp8(granularity: str, fp8: torch.dtype, dtype: torch.dtype, isa: str) -> None:
    for quantize in (quantize_fp8, reference.quantize_fp8):
        codes, _ = quantize(torch.tensor([LARGE]).to(dtype), "tensor", torch.ones(1), fp8)
        assert tuple(codes.view(torch.uint8).flatten().tolist()) == GIVEN[fp8]
        for row, (scale, expected) in DYNAMIC.items():
            codes, scales = quantize(torch.tensor([row]).to(dtype), granularity, None, fp8)
            assert torch.equal(scales.flatten(), torch.tensor([scale])) or scales.isnan().all()
            assert bool(scales.isnan()) == math.isnan(scale)
            assert tuple(codes.view(torch.uint8).flatten().tolist()) == expected[fp8]
            assert (codes.float() * scales).isnan().all()


MX = [name for name, facts in FORMATS.items() if facts.is_mx]


@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("format", MX)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@ON_GPUS_TOO
def test_a_block_of_mx(format: str, value: float, dtype: torch.dtype, isa: str) -> None:
    """The scale is NaN and the codes are zero; other blocks are as they were."""
    x = torch.ones(1, 3 * MX_BLOCK, dtype=dtype)
    whole = quantize_mx(x, format)
    x[0, MX_BLOCK + 5] = value
    for codes, scales in (quantize_mx(x, format), reference.quantize_mx(x, format)):
        assert scales[0, 1] == 0xFF
        assert not codes.view(torch.uint8).chunk(3, dim=1)[1].any()
        for place in (0, 2):
            assert scales[0, place] == whole[1][0, place]
            parts = [each.view(torch.uint8).chunk(3, dim=1)[place] for each in (codes, whole[0])]
            assert torch.equal(*parts)


@pytest.mark.parametrize("format", MX)
def test_elements_saturate(format: str) -> None:
    """Elements saturate under scales that are chosen elsewhere."""
    facts = FORMATS[format]
    values = torch.tensor([[INF, -INF, 3e38, -3e38] + [0.0] * 28])
    rounded = nearest(values, format)
    assert rounded[0, :4].tolist() == [facts.max, -facts.max, facts.max, -facts.max]
    scales = torch.full((1, 1), 127, dtype=torch.uint8)
    found = reference.dequantize(packed(rounded, format), format, scales)
    assert torch.equal(found, rounded.double())
