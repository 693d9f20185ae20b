"""Scales of FP8 weights, from the maximum of each channel or block."""

from __future__ import annotations

import torch

from hk_backend.terms.weight_format import FP8_BLOCK


def fp8_scales(weight: torch.Tensor, granularity: str, largest: float) -> torch.Tensor:
    """float32 scales that map the largest value of each group of a weight `[n, k]` to `largest`.

    There is one scale per "channel", `[n, 1]`, or per "block" of 128x128. The operator's minimum
    for dynamic scales does not apply: a channel may be tiny, and a channel of zeros can have any
    scale.
    """
    if granularity == "channel":
        highest = _largest_of_rows(weight)
    else:
        columns = torch.cat([_largest_of_rows(part) for part in weight.split(FP8_BLOCK, 1)], 1)
        highest = torch.stack([part.amax(0) for part in columns.split(FP8_BLOCK)])
    return (highest / largest).clamp(min=torch.finfo(torch.float32).tiny)


def _largest_of_rows(weight: torch.Tensor) -> torch.Tensor:
    """Largest absolute value of each row, float32 `[n, 1]`, without a copy of the weight."""
    low, high = weight.aminmax(dim=1, keepdim=True)
    return torch.maximum(high, -low).float()
