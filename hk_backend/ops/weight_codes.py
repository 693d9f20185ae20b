"""Codes of a weight under given scales."""

from __future__ import annotations

import torch

from hk_backend.ops.mx_elements import nearest, packed
from hk_backend.ops.mx_scales import spread
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK


def codes_under(values: torch.Tensor, format: str, scales: torch.Tensor) -> torch.Tensor:
    """Codes of `values` `[n, k]` under `scales`, in the layouts of `pack_weight`.

    Each code is the nearest, ties to even, saturating.
    """
    return packed(nearest(values.float() / factors(scales, format, *values.shape), format), format)


def factors(scales: torch.Tensor, format: str, n: int, k: int) -> torch.Tensor:
    """Scale of each element of a weight: float32 `[n, k]`."""
    if FORMATS[format].is_mx:
        return spread(scales)
    if scales.shape != (n, 1):
        scales = scales.repeat_interleave(FP8_BLOCK, 0)[:n]
        scales = scales.repeat_interleave(FP8_BLOCK, 1)
    return scales[:, :k].expand(n, k)
