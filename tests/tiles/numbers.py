"""Random numbers; 16-bit elements as their bits, and what float64 they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
Bits = NDArray[np.uint16]


def randn(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def to_bits(values: NDArray[Any], dtype: str) -> Bits:
    """Rounded to nearest even by torch."""
    rounded = torch.from_numpy(np.ascontiguousarray(values)).to(DTYPES[dtype])
    return rounded.view(torch.uint16).numpy()


def to_float64(bits: Bits, dtype: str) -> NDArray[np.float64]:
    values = torch.from_numpy(np.ascontiguousarray(bits)).view(DTYPES[dtype]).double()
    return np.asarray(values.numpy())


def unique_elements(rows: int, columns: int) -> Bits:
    """No two alike: what moves them cannot mix them up."""
    assert rows * columns <= 2**16
    return np.arange(rows * columns, dtype=np.uint16).reshape(rows, columns)


NAN = 0x7FFF
"""The bits of a NaN in bf16 and f16."""


def nans(*shape: int) -> Bits:
    return np.full(shape, NAN, np.uint16)
