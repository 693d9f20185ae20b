"""Conversion to float8 as hardware writes a cache: too large numbers become the largest one.

torch's own conversion to float8_e4m3fn does so from some version between 2.7 and 2.13 on, and
before that made NaN of it. Its float8_e5m2 has infinities, its fnuz types make NaN.
"""

from __future__ import annotations

import torch


def saturated(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The nearest numbers of `dtype`, ties to even; infinities become the largest, NaN stays."""
    largest = torch.finfo(dtype).max
    return values.clamp(-largest, largest).to(dtype)
