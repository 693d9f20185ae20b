"""A tensor as a file says what it is, without its values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StoredTensor:
    """`name`: in the file; of a layer's tensor that is yet to be written, behind the layer's."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize
