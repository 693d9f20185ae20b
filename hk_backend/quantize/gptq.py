"""Rounds a weight column by column; later columns make up for each column's error (GPTQ).

GPTQ minimises the error of the layer's outputs over calibration inputs X `[tokens, k]`: the
objective tr(E H E^T), with E the error of the weight and H = 2 X^T X / tokens. See
https://arxiv.org/abs/2210.17323, and https://arxiv.org/abs/2509.23202 for MX formats. Scales are
chosen first, for the original weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hk_backend.ops.mx_elements import nearest
from hk_backend.ops.weight_codes import codes_under, factors
from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.together import torch_threads

DAMPING = 0.01
"""Share of the mean of the Hessian's diagonal that is added to every diagonal element.

It keeps the Hessian invertible for inputs that calibration hardly saw."""
BLOCK = 256
"""Number of columns whose errors are applied to the rest of the weight in one product."""
FEW = 16
"""Number of columns whose errors are applied to the rest of their block in one product."""
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
    error = values - weight
    return float((error @ hessian).mul_(error).sum(dtype=torch.float64))


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
        with torch_threads(1):  # steps of a few microseconds
            errors = _move_block(left[here], steps[here], upper[here, here], format)
        left[rest].addmm_(upper[here, rest].T, errors, alpha=-1)
    found = torch.empty_like(weight)
    found[:, order] = left.T
    return found


def _move_block(
    left: torch.Tensor, steps: torch.Tensor, upper: torch.Tensor, format: str
) -> torch.Tensor:
    """Moves a block of columns, `left` `[k, n]`, in place.

    Returns their errors in units of the diagonal of `upper`, the block's part of the factor.
    """
    errors, diagonal = torch.empty_like(left), upper.diagonal().tolist()
    for column, (now, step) in enumerate(zip(left, steps, strict=True)):
        rounded = nearest(now / step, format).mul_(step)
        error = torch.sub(now, rounded, out=errors[column]).div_(diagonal[column])
        first = column // FEW * FEW
        few, rest = slice(column + 1, first + FEW), slice(first + FEW, None)
        left[few].addr_(upper[column, few], error, alpha=-1)
        if column + 1 == first + FEW:
            these = slice(first, first + FEW)
            left[rest].addmm_(upper[these, rest].T, errors[these], alpha=-1)
    return errors


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
