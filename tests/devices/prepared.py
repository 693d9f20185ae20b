"""Repeated calls of `linear` through a preparation that exists already."""

from __future__ import annotations

import pytest
import torch

from hk_backend.devices import Device
from hk_backend.ops.linear import linear_of_flat
from hk_backend.terms.packed_weight import PackedWeight


class NotPreparedError(Exception):
    """The error for a call that would be checked and prepared anew."""


def repeat_linear(
    device: Device,
    x: torch.Tensor,
    packed: PackedWeight,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
) -> torch.Tensor | None:
    """The result of a prepared call; None if the call would be prepared anew, or refused."""

    def refuse(*_: object) -> None:
        raise NotPreparedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "prepare", refuse)
        patch.setattr(device, "run", refuse)
        try:
            return linear_of_flat(x, packed.flat(), bias, out_dtype, None, device)
        except (NotPreparedError, ValueError):
            return None
