"""Scales that are chosen for the format, and GPTQ, for single weights, by the reference."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hk_backend import reference
from hk_backend.ops.mx_elements import nearest, packed
from hk_backend.ops.mx_scales import best_scales, round_to, usual_scales
from hk_backend.ops.weight_codes import codes_under
from hk_backend.quantize import gptq
from hk_backend.quantize.gptq import compensated
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
    for step in (-1, 1):  # nothing nearby is better
        shifted = (usual + step).clamp(0, FORMATS[format].largest_scale_code).to(torch.uint8)
        assert (chosen <= errors(codes_under(weight, format, shifted), shifted)).all()


@pytest.mark.parametrize("format", MX)
def test_scales_help_where_the_maximum_is_a_bad_guide(format: str) -> None:
    """A better scale exists: otherwise the usual ones would pass every test above. The block's
    elements are just too small for the steps that its maximum asks for; a smaller scale saturates
    one and rounds 31 finely."""
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
    """Scales at both ends of e8m0, and for zeros, are exact where the usual ones are."""
    weight = torch.zeros(3, MX_BLOCK)
    weight[0] = 2.0**-126
    weight[1] = 2.0**127
    scales = best_scales(weight, format)
    found = reference.dequantize(codes_under(weight, format, scales), format, scales)
    assert torch.equal(found, weight.double())
    assert torch.equal(mx_scale_values(scales[2]), torch.tensor([2.0**-127]).double())


# -- GPTQ: never worse than rounding to nearest, and better where inputs are related

GPTQ_FORMATS = [name for name in RECIPES if name != "mxfp6_e3m2"]


def inputs(tokens: int, k: int, rank: int, seed: int) -> torch.Tensor:
    """Activations `[tokens, k]` of few directions, with some channels that are large, and some
    zero."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, rank, generator=generator) @ torch.randn(rank, k, generator=generator)
    x[:, ::37] *= 50
    x[:, 5::41] = 0
    return x


def hessian_of(x: torch.Tensor) -> torch.Tensor:
    return 2.0 / len(x) * x.T @ x


@pytest.mark.parametrize("format", GPTQ_FORMATS)
@given(
    seed=st.integers(0, 1 << 16),
    spread=st.sampled_from([0.0, 1.0, 3.0]),
    tokens=st.sampled_from([1, 64, 500]),
    rank=st.sampled_from([1, 16, 300]),
)
@settings(max_examples=12, deadline=None)
def test_the_objective_is_never_above_that_of_rounding(
    format: str, seed: int, spread: float, tokens: int, rank: int
) -> None:
    """The objective is compared with that of `--method rtn`, also for fewer tokens than channels,
    and for channels that are never used."""
    weight, recipe = outlying(24, 5 * MX_BLOCK, seed, spread), RECIPES[format]
    x = inputs(tokens, 5 * MX_BLOCK, rank, seed)
    hessian = hessian_of(x)
    found = compensated([weight], hessian, recipe)[0]
    before, after = found.objective
    assert after <= before
    for each, told in ((recipe.quantize(weight), before), ((found.codes, found.scales), after)):
        error = recipe.dequantize(*each) - weight
        expected = float((error.double() @ x.double().T).square().sum()) * 2 / tokens
        # H is a float32 sum of `tokens` products, E H one of K; tr(E H E^T) loses what cancels
        size = float(hessian.double().norm() * error.norm() ** 2)
        assert abs(told - expected) <= 2.0**-23 * (tokens + len(hessian)) * size


@pytest.mark.parametrize("k", [32, 96, 288, 608])
@pytest.mark.parametrize("format", ["mxfp4", "fp8_e4m3fn"])
def test_values_are_those_of_plain_gptq(format: str, k: int) -> None:
    """Column by column in float64, from the inverse's Cholesky factor as in the paper, with every
    correction applied at once. Blocks change the order of float32 sums, and nothing else."""
    generator = torch.Generator().manual_seed(k)
    channel, sizes = torch.arange(k), 1 + torch.rand(k, generator=generator)
    related = 0.4 ** (channel[:, None] - channel).abs()  # the less, the farther apart
    weight, hessian = torch.randn(24, k, generator=generator), related * sizes.outer(sizes)
    smallest = {"mxfp4": -4, "fp8_e4m3fn": 6}[format]  # some elements of FP8 are denormal
    steps = 2.0 ** torch.randint(smallest, smallest + 5, (24, k), generator=generator)
    found = gptq.moved(weight, steps, hessian, format)
    rounded = nearest(found / steps, format) * steps
    expected, bound = plain_gptq(weight.double(), hessian.double(), rounded.double())
    assert ((found - expected).abs() <= bound).all()
    moved_by = (expected - weight).abs().mean()
    assert bound.max() < moved_by / 100, "the bound would see nothing"


def plain_gptq(
    weight: torch.Tensor, hessian: torch.Tensor, rounded: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The values that GPTQ rounds to `rounded`, and how far float32 may stray from them.

    A value is a sum of at most K products, and inherits the errors of those before it.
    """
    unit, k = 2.0**-24, len(hessian)
    order = hessian.diagonal().argsort(descending=True, stable=True)
    damped = hessian[order][:, order].clone()
    damped.diagonal().add_(gptq.DAMPING * hessian.diagonal().mean())
    upper = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)
    values, sizes, bounds = weight[:, order], weight[:, order].abs(), torch.zeros_like(weight)
    for i, of in enumerate(order):
        bounds[:, i] += (k + 3) * unit * sizes[:, i]
        error = (values[:, i] - rounded[:, of]) / upper[i, i]
        stray = bounds[:, i] / upper[i, i]
        values[:, i + 1 :] -= error[:, None] * upper[i, i + 1 :]
        sizes[:, i + 1 :] += error.abs()[:, None] * upper[i, i + 1 :].abs()
        bounds[:, i + 1 :] += stray[:, None] * upper[i, i + 1 :].abs()
    back = order.argsort()
    return values[:, back], bounds[:, back]


@pytest.mark.parametrize("format", GPTQ_FORMATS)
def test_related_inputs_are_made_up_for(format: str) -> None:
    """Inputs of 16 directions leave most of a column's error to the others. Independent inputs
    leave only the scales to gain from."""
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    recipe = RECIPES[format]
    hessian = hessian_of(inputs(1000, 256, 16, 1))
    before, after = compensated([weight], hessian, recipe)[0].objective
    assert after < before / 4
    alone = compensated([weight], torch.eye(256), recipe)[0]
    scales = recipe.best_scales(weight)
    assert torch.equal(alone.scales.float(), scales.float())
    assert torch.equal(alone.codes.float(), codes_under(weight, recipe.format, scales).float())


def test_weights_with_the_same_inputs() -> None:
    """Each weight gets what it gets alone, from one factor of the Hessian for all of them."""
    recipe, hessian = RECIPES["mxfp4"], hessian_of(inputs(500, 128, 16, 1))
    weights = [outlying(rows, 128, seed=rows) for rows in (128, 48, 7)]
    together = compensated(weights, hessian, recipe)
    for weight, found in zip(weights, together, strict=True):
        [alone] = compensated([weight], hessian, recipe)
        assert torch.equal(found.codes.float(), alone.codes.float())
        assert torch.equal(found.scales, alone.scales)
        assert found.objective == alone.objective


def test_scales_that_were_chosen_badly_are_not_taken() -> None:
    """The smallest squared error is not the smallest objective where one channel of a block counts
    most and is rounded exactly by the usual scale: that is rounding to nearest."""
    recipe, hessian = RECIPES["mxfp4"], torch.eye(32)
    hessian[0, 0] = 1e6
    weight = torch.full((1, 32), 0.7)
    weight[0, 0] = 4.0
    usual, chosen = recipe.quantize(weight)[1], recipe.best_scales(weight)
    assert int(chosen) < int(usual), "the case is one"
    found = compensated([weight], hessian, recipe)[0]
    assert torch.equal(found.scales, usual)
    assert found.objective[0] == found.objective[1]


def test_worse_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compensation that makes it worse is thrown away, and so is that for inputs of zeros."""
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    hessian, recipe = hessian_of(inputs(500, 64, 16, 1)), RECIPES["mxfp4"]
    before, after = compensated([weight], hessian, recipe)[0].objective
    assert after < before
    nothing = compensated([weight], torch.zeros(64, 64), recipe)[0]
    assert all(map(torch.equal, (nothing.codes, nothing.scales), recipe.quantize(weight)))
    assert nothing.objective == (0, 0)
    right = gptq._inverse_factor

    def wrong(hessian: torch.Tensor) -> torch.Tensor:
        factor = right(hessian)
        return 2 * factor.diag().diag() - factor

    monkeypatch.setattr(gptq, "_inverse_factor", wrong)
    found = compensated([weight], hessian, recipe)[0]
    assert all(map(torch.equal, (found.codes, found.scales), recipe.quantize(weight)))
    assert found.objective[0] == found.objective[1]


@pytest.mark.parametrize("k", [1, 2, 31, 200])
def test_the_factor_is_of_the_inverse(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor is upper triangular, by halves of any size, and U^T U H the identity, to the
    rounding of U to float32."""
    monkeypatch.setattr(gptq, "SMALL", 8)
    hessian = hessian_of(torch.randn(2 * k, k, generator=torch.Generator().manual_seed(k)))
    factor = gptq._inverse_factor(hessian).double()
    damped = hessian.double()
    damped.diagonal().add_(gptq.DAMPING * float(hessian.double().diagonal().mean()))
    assert torch.equal(factor, factor.triu())
    error = factor.T @ factor @ damped - torch.eye(k).double()
    size = float(factor.norm() ** 2 * damped.norm())
    assert error.norm() <= 2 * 2.0**-24 * size
