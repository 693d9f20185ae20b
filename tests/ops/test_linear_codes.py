"""`linear` of activations that somebody else has quantised."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import linear
from hk_backend.terms.weight_format import FORMATS
from tests.ops.linear_cases import KINDS, X_LAYOUTS, Case, Layer, laid_out, make
from tests.ops.linear_oracle import check_result
from tests.ops.test_linear_on_gfx950 import SERVED

QUANTISED = [kind for kind in KINDS if kind[1] not in ("none", "rotated")]
MX = [kind for kind in QUANTISED if FORMATS[kind[0]].is_mx]
ON_GFX950 = [kind for kind in SERVED if kind in QUANTISED]
ROWS = (0, 1, 2, 7, 17, 33)
OTHER_SCALE = torch.tensor([0.021])
"""A scale unlike the static one of `make`."""


def quantised(layer: Layer, scale: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes and scales that another library's kernel would hand over for `layer`."""
    format = FORMATS[layer.format].of_activations(layer.activations)
    if format is not None and format.is_mx:
        return reference.quantize_mx(layer.x, format.name, rotation=layer.rotation)
    given = layer.input_scale if scale is None else scale
    dtype = FORMATS[layer.format].dtype
    return reference.quantize_fp8(layer.x, layer.activations, given, dtype)


def run(layer: Layer, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return linear(codes, layer.pack(), layer.bias, layer.out_dtype, scales)


def check_rows(kind: tuple[str, str, str]) -> None:
    case = Case(*kind, n=72, k=160, bias=torch.bfloat16)
    for m in ROWS:
        layer = make(case.but(m=m, seed=m))
        check_result(layer, run(layer, *quantised(layer)))


@pytest.mark.parametrize("kind", QUANTISED)
def test_on_the_cpu(kind: tuple[str, str, str], isa: str) -> None:
    check_rows(kind)


@pytest.mark.parametrize("kind", ON_GFX950)
def test_on_gfx950(kind: tuple[str, str, str], on_gfx950: None) -> None:
    """Codes are not rounded again: they give the bits that the operator makes of their rows."""
    check_rows(kind)
    layer = make(Case(*kind, m=9, n=40, k=256, out_dtype=torch.bfloat16))
    assert torch.equal(run(layer, *quantised(layer)), layer.run())


@pytest.mark.parametrize("kind", [kind for kind in ON_GFX950 if kind[1] == "tensor"])
def test_scales_that_came_with_the_codes_count(kind: tuple[str, str, str], on_gfx950: None) -> None:
    """The scale that was packed is not used."""
    layer = make(Case(*kind, static=True))
    found = run(layer, *quantised(layer, OTHER_SCALE))
    check_result(replace(layer, input_scale=OTHER_SCALE), found)
    with pytest.raises(AssertionError):
        check_result(layer, found)


@pytest.mark.parametrize("kind", MX)
@pytest.mark.parametrize("on", ["cpu", "gfx950"])
def test_any_codes(kind: tuple[str, str, str], on: str, request: pytest.FixtureRequest) -> None:
    """Codes that no rounding of HK's makes: small numbers beside large scales, and a scale of NaN.
    They are taken as they are."""
    if on == "gfx950":
        request.getfixturevalue("on_gfx950")
    layer = make(Case(*kind, m=9, n=40, k=160))
    format = FORMATS[layer.format].of_activations(layer.activations)
    assert format is not None
    random = torch.Generator().manual_seed(3)
    codes = torch.randint(256, (9, 160 * format.bits // 8), generator=random, dtype=torch.uint8)
    if format.has_nan_code:
        codes = codes.masked_fill(codes & 0x7F == 0x7F, 0x77)  # 240, which 448 is not a power from
    scales = torch.randint(120, 134, (9, 5), generator=random, dtype=torch.uint8)
    values = reference.dequantize(codes.view(format.dtype), format.name, scales)
    scales[4, 2] = 0xFF
    found = run(layer, codes.view(format.dtype), scales)
    assert found[4].isnan().all()
    exact = replace(layer, x=values.float(), activations="none", rotation=0)
    rest = [row for row in range(9) if row != 4]
    exact = replace(exact, x=exact.x[rest], out_dtype=layer.out_dtype or layer.x.dtype)
    check_result(exact, found[rest])


@pytest.mark.parametrize("kind", [k for k in ON_GFX950 if k[1] in ("token", "tensor")])
def test_scales_of_rows_or_of_all(kind: tuple[str, str, str], on_gfx950: None) -> None:
    """Kernels that round before the operator need not do as it would."""
    layer = make(Case(*kind, m=9, out_dtype=torch.bfloat16))
    weight = layer.pack()
    for granularity in ("token", "tensor"):
        codes, scales = reference.quantize_fp8(layer.x, granularity)
        for _ in range(2):  # the second call repeats a launch
            out = linear(codes, weight, layer.bias, layer.out_dtype, scales)
            check_result(replace(layer, activations=granularity), out)


@pytest.mark.parametrize("layout", X_LAYOUTS)
def test_strides(layout: str, on_gfx950: None) -> None:
    layer = make(Case("fp8_e4m3fn", "token", "channel", m=6))
    codes, scales = quantised(layer)
    hostile = laid_out(codes.view(torch.uint8), layout).view(torch.float8_e4m3fn)
    apart = torch.full((6, 3), torch.nan)[:, 1:2]
    apart.copy_(scales)
    found = run(layer, hostile, apart.view(*hostile.shape[:-1], 1))
    check_result(layer, found.reshape(6, -1))


def test_a_nan_code_makes_its_row_nan(on_gfx950: None) -> None:
    layer = make(Case("fp8_e4m3fn", "token", "channel", m=9))
    codes, scales = quantised(layer)
    clean = run(layer, codes, scales)
    codes.view(torch.uint8)[4, 7] = 0x7F
    found = run(layer, codes, scales)
    assert found[4].isnan().all()
    rest = [row for row in range(9) if row != 4]
    assert torch.equal(found[rest], clean[rest])
