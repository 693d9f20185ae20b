"""Small calls of attention, prepared for the GPU kernels; none of them runs."""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.devices.hip import attention
from hk_backend.devices.hip.call import KernelCall
from hk_backend.kernels import catalogue
from tests.ops.cases import Case, arguments, make

SPLIT_BY_CHANNEL = ("B H D/x N x", "B H D N")
SPLIT_BY_TOKEN = ("B H D/x N x", "B H N/x D x")
"""Caches' layout strings, of keys and of values."""


def prepared(**changes: Any) -> KernelCall:
    """A small call, prepared, with some arguments exchanged."""
    call = make(Case(((5, 5), (7, 7)), num_heads=4, num_kv_heads=2, dtype=torch.bfloat16))
    of = arguments(call, **{"scale": 0.5, "v_scale": 2.0, **changes})
    return attention.prepare(of, catalogue("gfx950"))


def paged(
    layout: str, block_size: int = 16, kv_dtype: torch.dtype = torch.bfloat16
) -> dict[str, Any]:
    """What to exchange for keys and values in a cache of `layout` (tests/ops/layouts.py)."""
    lengths = ((5, 40), (7, 7))
    call = make(Case(lengths, 4, 2, 64, torch.bfloat16, kv_dtype, layout, block_size))
    names = ("query", "paged_kv", "seq_lens", "block_table")
    return {"key": None, "value": None, **{name: call[name] for name in names}}
