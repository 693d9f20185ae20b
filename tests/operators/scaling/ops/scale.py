"""`scale`: multiplies a matrix by a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hk_backend.ops.registry import declare, run
from hk_backend.terms.checks import bad
from hk_backend.terms.verdict import SERVED, Verdict, refused


@dataclass(frozen=True, slots=True, eq=False)
class ScaleArguments:
    """`out = factor * x`, float32 `[rows, columns]`, both contiguous."""

    operator: ClassVar[str] = "scale"
    written: ClassVar[tuple[str, ...]] = ("out",)

    x: torch.Tensor
    out: torch.Tensor
    factor: float


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """Facts that decide whether a layer that scales is served."""

    operator: ClassVar[str] = "scale"

    device_type: str
    dtype: torch.dtype


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Multiplies a float32 matrix by a number.

    Raises:
        ValueError: `x` is no contiguous float32 matrix.
    """
    if x.dim() != 2 or x.dtype != torch.float32 or not x.is_contiguous():
        bad("x", f"{x.dtype} {tuple(x.shape)}", "a contiguous float32 matrix")
    out = torch.empty_like(x)
    run(ScaleArguments(x, out, factor), x)
    return out


def limits(request: ScaleRequest) -> Verdict:
    """Whether the operator, on any device, computes `request`."""
    return SERVED if request.dtype == torch.float32 else refused(f"x in {request.dtype}")


declare(scale, ScaleArguments, limits=limits)
