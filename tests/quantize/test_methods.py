"""Scales that are chosen for the format, and rotation: of single weights, by the reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hk_backend import reference
from hk_backend.ops.mx_elements import nearest, packed
from hk_backend.ops.mx_scales import best_scales, round_to, usual_scales
from hk_backend.ops.weight_codes import codes_under
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.reference.linear import encode, mx_scale_values
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK

MX = [name for name, facts in FORMATS.items() if facts.is_mx]


def outlying(n: int, k: int, seed: int, spread: float = 2.0) -> torch.Tensor:
    """A weight whose rows, columns and single elements are of very different sizes; a few zeros."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    weight = normal(n, k) * (normal(n, 1) * spread).exp() * (normal(k) * spread).exp()
    weight[:, :: MX_BLOCK - 1] *= 20
    return weight.masked_fill(normal(n, k) > 2.5, 0.0)


@pytest.mark.parametrize("format", MX)
def test_elements_are_those_of_the_reference(format: str) -> None:
    """Every bfloat16 there is, ties and saturation included, to the code."""
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    values = values[values.isfinite()].float().view(-1, 4 * MX_BLOCK)
    expected = encode(values.double(), FORMATS[format])
    assert torch.equal(packed(nearest(values, format), format), expected)


@pytest.mark.parametrize("format", MX)
@given(seed=st.integers(0, 1 << 16), spread=st.sampled_from([0.0, 1.0, 4.0]))
@settings(max_examples=20, deadline=None)
def test_scales_are_never_worse_in_any_block(format: str, seed: int, spread: float) -> None:
    weight = outlying(16, 4 * MX_BLOCK, seed, spread)

    def errors(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        error = reference.dequantize(codes, format, scales) - weight.double()
        return error.square().unflatten(1, (-1, MX_BLOCK)).sum(-1)

    chosen = errors(*Method("scales").quantize(weight, RECIPES[format]))
    assert (chosen <= errors(*RECIPES[format].quantize(weight))).all()
    usual = usual_scales(weight, format).int()
    for step in (-1, 1):  # by definition, and nothing nearby is better
        shifted = (usual + step).clamp(0, FORMATS[format].largest_scale_code).to(torch.uint8)
        assert (chosen <= errors(codes_under(weight, format, shifted), shifted)).all()


@pytest.mark.parametrize("format", MX)
def test_scales_help_where_the_maximum_is_a_bad_guide(format: str) -> None:
    """Otherwise the usual ones would pass every test above. A block of elements just too small for
    the steps that its maximum asks for: a smaller scale saturates one and rounds 31 finely."""
    weight = torch.full((1, MX_BLOCK), 1.0)
    largest = 2.0 ** FORMATS[format].max_exponent
    weight[0, 0] = largest * (2 - 2.0 ** -(FORMATS[format].mantissa_bits + 1))
    weight[0, 1:] = torch.linspace(0.55, 0.7, MX_BLOCK - 1)
    usual, best = usual_scales(weight, format), best_scales(weight, format)
    errors = [(round_to(weight, each, format) - weight).norm() for each in (usual, best)]
    assert errors[1] <= errors[0]
    if format == "mxfp4":
        assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize("format", MX)
def test_extreme_scales(format: str) -> None:
    """At both ends of e8m0, and for zeros: exact where the usual scale is."""
    weight = torch.zeros(3, MX_BLOCK)
    weight[0] = 2.0**-126
    weight[1] = 2.0**127
    scales = best_scales(weight, format)
    found = reference.dequantize(codes_under(weight, format, scales), format, scales)
    assert torch.equal(found, weight.double())
    assert torch.equal(mx_scale_values(scales[2]), torch.tensor([2.0**-127]).double())
