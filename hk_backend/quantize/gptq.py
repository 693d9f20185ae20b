"""Rounds a weight column by column, each column's error made up for by those after it (GPTQ).

What is minimised is the error of the layer's outputs over calibration inputs X `[tokens, k]`: the
objective tr(E H E^T), with E the error of the weight and H = 2 X^T X / tokens. See
https://arxiv.org/abs/2210.17323, and https://arxiv.org/abs/2509.23202 for MX formats. Scales are
chosen before, for the weight as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hk_backend.ops.mx_elements import nearest
from hk_backend.ops.weight_codes import codes_under, factors
from hk_backend.quantize.recipe import Recipe

DAMPING = 0.01
"""Of the mean of the Hessian's diagonal, added to it: for inputs that calibration hardly saw."""
BLOCK = 128
"""Columns whose errors reach the rest of the weight in one product."""
SMALL = 512
"""A triangular matrix of so many rows is inverted by substitution."""


@dataclass(frozen=True)
class Compensated:
    """A weight's codes and scales, its relative error as in the report, and the objective of
    rounding to nearest and of these codes."""

    codes: torch.Tensor
    scales: torch.Tensor
    error: float
    objective: tuple[float, float]


def compensated(
    targets: Sequence[torch.Tensor], hessian: torch.Tensor, recipe: Recipe
) -> list[Compensated]:
    """Codes and scales of `targets` `[n, k]` (float32), weights whose inputs are the same.

    Where GPTQ's are no better they are those of `--method rtn`: no objective ends above its.
    """
    scales = [recipe.best_scales(target) for target in targets]
    steps = [
        factors(of, recipe.format, *target.shape)
        for of, target in zip(scales, targets, strict=True)
    ]
    # together: a column's step takes hardly longer for more rows
    values = moved(torch.cat(list(targets)), torch.cat(steps), hessian, recipe.format)
    parts = values.split([len(target) for target in targets])
    return [
        _better(target, codes_under(part, recipe.format, of), of, hessian, recipe)
        for target, part, of in zip(targets, parts, scales, strict=True)
    ]


def _better(
    target: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    hessian: torch.Tensor,
    recipe: Recipe,
) -> Compensated:
    """GPTQ's `codes` and `scales`, or those of rounding to nearest."""
    choices = [recipe.quantize(target), (codes, scales)]
    before, after = (objective(recipe.dequantize(*each), target, hessian) for each in choices)
    codes, scales = choices[after < before]
    error = recipe.relative_error(codes, scales, target)
    return Compensated(codes, scales, error, (before, min(before, after)))


def objective(values: torch.Tensor, weight: torch.Tensor, hessian: torch.Tensor) -> float:
    """tr(E H E^T) of the error E = `values` - `weight`, both `[n, k]`."""
    error = (values - weight).double()
    return float(((error @ hessian.double()) * error).sum())


def moved(
    weight: torch.Tensor, steps: torch.Tensor, hessian: torch.Tensor, format: str
) -> torch.Tensor:
    """What to round instead of `weight` `[n, k]` (float32) to multiples by `steps` `[n, k]` of the
    elements of `format`. Columns with large inputs go first."""
    order = hessian.diagonal().argsort(descending=True, stable=True)
    upper = _inverse_factor(hessian[order][:, order])
    left, steps = weight.T[order], steps.T[order]  # a column's weights are neighbours
    for first in range(0, len(left), BLOCK):
        here, rest = slice(first, first + BLOCK), slice(first + BLOCK, None)
        part, triangle = left[here], upper[here, here]
        errors = torch.empty_like(part)
        with _one_thread():
            for column, (now, step) in enumerate(zip(part, steps[here], strict=True)):
                rounded = nearest(now / step, format) * step
                errors[column] = (now - rounded) / triangle[column, column]
                part[column + 1 :] -= triangle[column, column + 1 :, None] * errors[column]
        left[rest] -= upper[here, rest].T @ errors
    found = torch.empty_like(weight)
    found[:, order] = left.T
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute steps of a few microseconds, which take longer to deal to threads than to compute.

    Each step waits for all threads, so that on a busy machine it takes a scheduler's time slice.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _inverse_factor(hessian: torch.Tensor) -> torch.Tensor:
    """The upper triangular U with U^T U = H^-1 of the damped Hessian: the inverse of the upper
    triangular R with R R^T = H, which is the Cholesky factor of H backwards, backwards."""
    damped = hessian.double()
    damping = DAMPING * float(damped.diagonal().mean())
    damped.diagonal().add_(damping or 1.0)  # a layer that only ever saw zeros
    factor = torch.linalg.cholesky(damped.flip(0, 1)).flip(0, 1)
    return _inverse(factor).float()


def _inverse(upper: torch.Tensor) -> torch.Tensor:
    """Of an upper triangular matrix, by halves: products are faster than substitution."""
    if len(upper) <= SMALL:
        one = torch.eye(len(upper), dtype=upper.dtype)
        inverse: torch.Tensor = torch.linalg.solve_triangular(upper, one, upper=True)
        return inverse
    half, inverse = len(upper) // 2, torch.zeros_like(upper)
    inverse[:half, :half] = first = _inverse(upper[:half, :half])
    inverse[half:, half:] = last = _inverse(upper[half:, half:])
    inverse[:half, half:] = -first @ (upper[:half, half:] @ last)
    return inverse
