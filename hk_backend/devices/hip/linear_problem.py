"""The problem that a gemm kernel must solve before its first use."""

from __future__ import annotations

import torch

from hk_backend.devices.hip.linear_family import ELEMENTS, TYPES
from hk_backend.devices.hip.operator import Problem
from hk_backend.devices.hip.weight_layout import FORMATS_OF, pack, packed_bytes
from hk_backend.kernels import KernelEntry
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.linear_arguments import LinearArguments, PackWeightArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK

PROBLEM = (75, 88, 208)
"""Sizes (M, N, K) of the self-check; none is a multiple of a tile's."""


def problem_of(kernel: KernelEntry) -> Problem:
    """A product of fixed random numbers, with scales of every kind that `kernel` reads."""
    a, b = (next(d for d, name in ELEMENTS.items() if name == kernel.facts[of]) for of in "ab")
    format = next(name for name in FORMATS_OF if FORMATS[name].dtype == b)
    m, n, k = PROBLEM
    random = torch.Generator().manual_seed(0)
    x = torch.randn(m, k, generator=random).to(a)
    rows = torch.randn(n, k, generator=random).to(b)
    blocks = -(-k // FP8_BLOCK) if kernel.facts["scales"] == "blocks" else 1
    of_rows = 1 + torch.arange(m * blocks).view(m, blocks) % 3.0
    of_columns = 1 + torch.arange(n) % 5.0
    of_blocks = 1 + torch.arange(blocks).view(1, blocks) % 2.0 if blocks > 1 else None
    activations = "none" if a.itemsize > 1 else "token" if of_blocks is None else "token_block"
    data = torch.empty(packed_bytes(format, n, k), dtype=torch.uint8)
    pack(PackWeightArguments(rows, format, n, k, None, None, activations, data))
    weight = PackedWeight(data, of_columns, of_blocks, None, format, n, k, activations, kernel.arch)
    out = torch.full((m, n), torch.nan, dtype=a if a in TYPES else torch.bfloat16)
    of_k = of_rows if of_blocks is None else of_rows * of_blocks
    wide = of_k.repeat_interleave(-(-k // blocks) if blocks == 1 else FP8_BLOCK, 1)[:, :k]
    exact = (x.double() * wide.double()) @ rows.double().T * of_columns.double()
    arguments = LinearArguments(x, weight, None, out, of_rows)
    return Problem(arguments, {"out": (exact, largest_error)}, tolerance(out.dtype))
