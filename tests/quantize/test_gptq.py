"""GPTQ of one weight: never worse than rounding to nearest, and better where inputs are related."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hk_backend.ops.mx_elements import nearest
from hk_backend.quantize import gptq
from hk_backend.quantize.gptq import compensated, objective
from hk_backend.quantize.recipe import RECIPES
from hk_backend.quantize.values import factors
from hk_backend.terms.weight_format import MX_BLOCK
from tests.quantize.test_methods import outlying

FORMATS = [name for name in RECIPES if name != "mxfp6_e3m2"]


def inputs(tokens: int, k: int, rank: int, seed: int) -> torch.Tensor:
    """`[tokens, k]`: of few directions, with channels that are large, and some that are zero."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, rank, generator=generator) @ torch.randn(rank, k, generator=generator)
    x[:, ::37] *= 50
    x[:, 5::41] = 0
    return x


def steps_of(weight: torch.Tensor, format: str) -> torch.Tensor:
    """The factors under which `hk-backend quantize` rounds `weight`."""
    recipe = RECIPES[format]
    return factors(recipe.best_scales(weight), recipe.format, *weight.shape)


def rounded(weight: torch.Tensor, steps: torch.Tensor, format: str) -> torch.Tensor:
    return nearest(weight / steps, RECIPES[format].format) * steps


def hessian_of(x: torch.Tensor) -> torch.Tensor:
    return 2.0 / len(x) * x.T @ x


@pytest.mark.parametrize("format", FORMATS)
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
    """Also with fewer tokens than channels, and with channels that are never used."""
    weight = outlying(24, 5 * MX_BLOCK, seed, spread)
    x = inputs(tokens, 5 * MX_BLOCK, rank, seed)
    steps, hessian = steps_of(weight, format), hessian_of(x)
    moved, before, after = compensated(weight, steps, hessian, RECIPES[format].format)
    assert after <= before
    for values, told in ((weight, before), (moved, after)):
        error = rounded(values, steps, format) - weight
        expected = float((error.double() @ x.double().T).square().sum()) * 2 / tokens
        # H is a float32 sum of `tokens` products; tr(E H E^T) loses what cancels in E H
        size = float(hessian.double().norm() * error.norm() ** 2)
        assert abs(told - expected) <= 2.0**-23 * tokens * size


@pytest.mark.parametrize("format", FORMATS)
def test_related_inputs_are_made_up_for(format: str) -> None:
    """Inputs of 16 directions leave most of a column's error to the others; of independent ones
    there is nothing to gain, and GPTQ knows."""
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    steps, elements = steps_of(weight, format), RECIPES[format].format
    related = inputs(1000, 256, 16, 1)
    _, before, after = compensated(weight, steps, hessian_of(related), elements)
    assert after < before / 4
    moved, before, after = compensated(weight, steps, torch.eye(256), elements)
    assert torch.equal(moved, weight)
    assert (
        before
        == after
        == pytest.approx(objective(rounded(weight, steps, format), weight, torch.eye(256)))
    )


def test_worse_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compensation that goes the wrong way is thrown away."""
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    steps, hessian = steps_of(weight, "mxfp4"), hessian_of(inputs(500, 64, 16, 1))
    _, before, after = compensated(weight, steps, hessian, "mxfp4")
    assert after < before
    right = gptq._inverse_factor

    def wrong(hessian: torch.Tensor) -> torch.Tensor:
        factor = right(hessian)
        return 2 * factor.diag().diag() - factor

    monkeypatch.setattr(gptq, "_inverse_factor", wrong)
    moved, before, after = compensated(weight, steps, hessian, "mxfp4")
    assert torch.equal(moved, weight)
    assert before == after


def test_nothing_but_zeros() -> None:
    """A layer whose inputs are always zero is rounded to nearest."""
    weight = torch.randn(16, 64)
    steps = steps_of(weight, "mxfp4")
    moved, before, after = compensated(weight, steps, torch.zeros(64, 64), "mxfp4")
    assert torch.equal(moved, weight)
    assert before == after == 0


@pytest.mark.parametrize("k", [1, 2, 31, 200])
def test_the_factor_is_of_the_inverse(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upper triangular, by halves of any size, and U^T U H the identity: within what the rounding
    of U to float32 makes of it."""
    monkeypatch.setattr(gptq, "SMALL", 8)
    hessian = hessian_of(torch.randn(2 * k, k, generator=torch.Generator().manual_seed(k)))
    factor = gptq._inverse_factor(hessian).double()
    damped = hessian.double()
    damped.diagonal().add_(gptq.DAMPING * float(hessian.double().diagonal().mean()))
    assert torch.equal(factor, factor.triu())
    error = factor.T @ factor @ damped - torch.eye(k).double()
    size = float(factor.norm() ** 2 * damped.norm())
    assert error.norm() <= 2 * 2.0**-24 * size
