"""Scales of FP8 weights, by the maximum of a channel or block."""

from __future__ import annotations

import torch

from hk_backend.terms.weight_format import FP8_BLOCK


def fp8_scales(weight: torch.Tensor, granularity: str, largest: float) -> torch.Tensor:
    """float32 scales of a weight `[n, k]`, with which the largest value that one covers is
    `largest`: one per "channel" `[n, 1]`, or per "block" of 128x128.

    Without the minimum that the operator applies to dynamic scales: a channel may be tiny, and
    a channel of zeros can have any scale.
    """
    if granularity == "channel":
        highest = _largest_of_rows(weight)
    else:
        columns = torch.cat([_largest_of_rows(part) for part in weight.split(FP8_BLOCK, 1)], 1)
        highest = torch.stack([part.amax(0) for part in columns.split(FP8_BLOCK)])
    return (highest / largest).clamp(min=torch.finfo(torch.float32).tiny)


def _largest_of_rows(weight: torch.Tensor) -> torch.Tensor:
    """float32 `[n, 1]`; no copy of the weight is made."""
    low, high = weight.aminmax(dim=1, keepdim=True)
    return torch.maximum(high, -low).float()
