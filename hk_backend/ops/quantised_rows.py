"""The input of quantisers, any tensor of floats, as the rows of a matrix."""

from __future__ import annotations

import torch

from hk_backend.terms.checks import bad, check_no_grad
from hk_backend.terms.weight_format import FLOAT_DTYPES


def check_x(x: torch.Tensor) -> None:
    if x.dtype not in FLOAT_DTYPES:
        bad("x", x.dtype, "bfloat16, float16 or float32")
    if x.dim() < 1 or x.shape[-1] < 1:
        bad("x", tuple(x.shape), "the shape [..., K] with K at least 1")
    check_no_grad(x=x)


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """`x` as `[M, K]` with contiguous rows, copied only if that is necessary."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def as_rows(result: torch.Tensor) -> torch.Tensor:
    return result.view(-1, result.shape[-1])
