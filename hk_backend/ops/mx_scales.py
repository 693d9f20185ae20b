"""Shared scales of MX blocks that minimise the error, instead of following the block's maximum."""

from __future__ import annotations

import torch

from hk_backend.ops.mx_elements import nearest
from hk_backend.ops.quantize_mx import quantize_mx
from hk_backend.reference.linear import mx_scale_values
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK

NEIGHBOURS = (0, 1, -1)
"""Exponents to try, counted from the usual one, which comes first and wins a tie."""
AT_ONCE = 1 << 22
"""Elements that are searched at once, in about 200 MB."""


def usual_scales(weight: torch.Tensor, format: str) -> torch.Tensor:
    """e8m0 codes of a finite `weight` `[n, k]` by each block's maximum: uint8 `[n, k / 32]`."""
    return quantize_mx(weight, format)[1]


def best_scales(weight: torch.Tensor, format: str) -> torch.Tensor:
    """e8m0 codes of a finite `weight` `[n, k]` with the least squared error: uint8 `[n, k / 32]`.

    Candidates for each block are its usual scale and the scales at `NEIGHBOURS` exponents.
    """
    rows = max(1, AT_ONCE // weight.shape[1])
    return torch.cat([_best(part, format) for part in weight.split(rows)])


def _best(weight: torch.Tensor, format: str) -> torch.Tensor:
    usual = usual_scales(weight, format)
    best, least = usual, torch.full(usual.shape, torch.inf, dtype=torch.float64)
    for step in NEIGHBOURS:
        codes = (usual.int() + step).clamp(0, FORMATS[format].largest_scale_code)
        scales = codes.to(torch.uint8)
        error = round_to(weight, scales, format).double() - weight
        total = error.square().unflatten(1, (-1, MX_BLOCK)).sum(-1)
        best = torch.where(total < least, scales, best)
        least = torch.minimum(total, least)
    return best


def spread(scales: torch.Tensor) -> torch.Tensor:
    """Scale of every element: float32 `[n, k]`."""
    return mx_scale_values(scales).float().repeat_interleave(MX_BLOCK, 1)


def round_to(weight: torch.Tensor, scales: torch.Tensor, format: str) -> torch.Tensor:
    """Values of `weight` after rounding under `scales`: float32 `[n, k]`."""
    factors = spread(scales)
    return nearest(weight.float() / factors, format) * factors
