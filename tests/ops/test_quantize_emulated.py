"""`ops.quantize_fp8` on the emulated GPU: the bits of the reference, as on the cpu device."""

from __future__ import annotations

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import quantize_fp8
from hk_backend.terms.weight_format import FLOAT_DTYPES
from tests.ops.linear_cases import X_LAYOUTS, laid_out
from tests.ops.test_quantize import (
    around_ties,
    check_fp8,
    hard_rows,
    positive_fp8,
    reciprocal_ties,
)

E4M3 = torch.float8_e4m3fn
COMPUTED = ("token", "channel", "token_block")
GIVEN = ("tensor", *COMPUTED, "block")
pytestmark = pytest.mark.usefixtures("on_gfx950")


@pytest.mark.parametrize("granularity", COMPUTED)
def test_ties_of_scales(granularity: str) -> None:
    rows = torch.stack([reciprocal_ties(float(largest)) for largest in range(3, 256, 2)])
    check_fp8(rows, granularity, E4M3)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("granularity", COMPUTED)
def test_hard_rows(granularity: str, dtype: torch.dtype) -> None:
    rows = hard_rows(dtype)
    check_fp8(rows, granularity, E4M3)
    check_fp8(rows[:, :8], granularity, E4M3)


@pytest.mark.parametrize("scale", [1.0, 4.0, 2.0**-20])
def test_ties(scale: float) -> None:
    x = around_ties(positive_fp8(E4M3))[None]
    check_fp8(x * scale, "tensor", E4M3, torch.tensor([scale]))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e30, 1e-38])
def test_random_float32_bits(scale: float) -> None:
    """Any bits, NaN and infinities among them, under a given scale."""
    random = torch.Generator().manual_seed(3)
    bits = torch.randint(-(2**31), 2**31, (300, 256), generator=random).to(torch.int32)
    check_fp8(bits.view(torch.float32), "tensor", E4M3, torch.tensor([scale]))


@pytest.mark.parametrize("granularity", GIVEN)
def test_given_scales(granularity: str) -> None:
    x = torch.randn(150, 296, generator=torch.Generator().manual_seed(4)).bfloat16()
    _, scales = reference.quantize_fp8(x, granularity)
    given = scales * (1 + torch.arange(scales.numel()).view(scales.shape) / 7)
    check_fp8(x, granularity, E4M3, given)


@pytest.mark.parametrize("layout", X_LAYOUTS)
@pytest.mark.parametrize("m", [1, 6])
def test_strides(m: int, layout: str) -> None:
    x = laid_out(torch.randn(m, 160, generator=torch.Generator().manual_seed(5)), layout)
    for granularity in ("token", "token_block"):
        check_fp8(x, granularity, E4M3)


@pytest.mark.parametrize(
    ("granularity", "dtype", "why"),
    [
        ("tensor", E4M3, "granularity: .* reciprocal of dynamic scales of 3 x 16 .* or given ones"),
        ("block", E4M3, "granularity: .* divided by dynamic scales of 128 x 128"),
        ("token", torch.float8_e4m3fnuz, "dtype: torch.float8_e4m3fnuz .* torch.float8_e4m3fn"),
    ],
)
def test_what_has_no_kernel_is_refused(granularity: str, dtype: torch.dtype, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        quantize_fp8(torch.ones(3, 16), granularity, None, dtype)
