"""The description of a tensor in a file, without its values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StoredTensor:
    """Name, shape and dtype of a tensor in a file.

    `name` is the full name in a file; of a recipe's tensor, the part behind the layer's name.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize
