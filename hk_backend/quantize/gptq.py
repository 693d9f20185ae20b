"""Rounds a weight column by column; later columns make up for each column's error (GPTQ).

GPTQ minimises the error of the layer's outputs over calibration inputs X `[tokens, k]`: the
objective tr(E H E^T), with E the error of the weight and H = 2 X^T X / tokens. See
https://arxiv.org/abs/2210.17323, and https://arxiv.org/abs/2509.23202 for MX formats. Scales are
chosen first, for the original weight.
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
"""Share of the mean of the Hessian's diagonal that is added to every diagonal element.

It keeps the Hessian invertible for inputs that calibration hardly saw."""
BLOCK = 128
"""Number of columns whose errors are applied to the rest of the weight in one product."""
SMALL = 512
"""Up to this many rows, a triangular matrix is inverted by substitution."""


@dataclass(frozen=True)
class Compensated:
    """Result of GPTQ for one weight: its codes, its scales and its relative error.

    objective: the objective of rounding to nearest, and that of these codes.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    error: float
    objective: tuple[float, float]


def compensated(
    targets: Sequence[torch.Tensor], hessian: torch.Tensor, recipe: Recipe
) -> list[Compensated]:
    """Codes and scales of `targets` `[n, k]` (float32), weights that share their inputs.

    A weight that GPTQ does not improve gets the codes and scales of `--method rtn`. So no objective
    is larger than with rounding to nearest.
    """
    scales = [recipe.best_scales(target) for target in targets]
    steps = [
        factors(of, recipe.format, *target.shape)
        for of, target in zip(scales, targets, strict=True)
    ]
    # all targets together: one column takes hardly longer for more rows
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
    """GPTQ's `codes` and `scales`, or those of rounding to nearest if they are as good."""
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
    """The values `[n, k]` that are rounded in place of `weight` `[n, k]`, float32.

    Each value includes the corrections of columns rounded before. Rounding is to multiples by
    `steps` `[n, k]` of the elements of `format`. Columns with large inputs go first.
    """
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
    """Let torch use one thread for steps of a few microseconds, which cost less than dispatching.

    With several threads each step waits for all of them: on a busy machine, for a time slice.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _inverse_factor(hessian: torch.Tensor) -> torch.Tensor:
    """The upper triangular U with U^T U = H^-1, where H is the damped Hessian.

    U is the inverse of the upper triangular R with R R^T = H. R is the Cholesky factor of H with
    rows and columns reversed, reversed again.
    """
    damped = hessian.double()
    damping = DAMPING * float(damped.diagonal().mean())
    damped.diagonal().add_(damping or 1.0)  # 1: the layer saw only zeros
    factor = torch.linalg.cholesky(damped.flip(0, 1)).flip(0, 1)
    return _inverse(factor).float()


def _inverse(upper: torch.Tensor) -> torch.Tensor:
    """Invert an upper triangular matrix by halves: products are faster than substitution."""
    if len(upper) <= SMALL:
        one = torch.eye(len(upper), dtype=upper.dtype)
        inverse: torch.Tensor = torch.linalg.solve_triangular(upper, one, upper=True)
        return inverse
    half, inverse = len(upper) // 2, torch.zeros_like(upper)
    inverse[:half, :half] = first = _inverse(upper[:half, :half])
    inverse[half:, half:] = last = _inverse(upper[half:, half:])
    inverse[:half, half:] = -first @ (upper[:half, half:] @ last)
    return inverse
