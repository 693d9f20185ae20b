"""The problem that a gemm kernel must solve before its first use."""

from __future__ import annotations

import torch

from hk_backend import reference
from hk_backend.devices.hip import mx_layout
from hk_backend.devices.hip.linear_family import ELEMENTS, TYPES
from hk_backend.devices.hip.operator import Problem
from hk_backend.devices.hip.weight_layout import FORMATS_OF, pack, packed_bytes
from hk_backend.kernels import KernelEntry
from hk_backend.kernels.gemm_operands import MX_ELEMENTS, operands_of
from hk_backend.routing.shadow_check import largest_error, tolerance
from hk_backend.terms.linear_arguments import LinearArguments, PackWeightArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK

PROBLEM = (75, 88, 224)
"""Sizes (M, N, K) of the self-check; none is a multiple of a tile's."""


def problem_of(kernel: KernelEntry) -> Problem:
    """A product of fixed random numbers, with scales of every kind that `kernel` reads."""
    return _of_mx(kernel) if operands_of(kernel).weights_are_mx else _of_rows(kernel)


MX_NAMES = {element: name for name, element in MX_ELEMENTS.items()}
"""Names of MX formats, by those of their elements in the kernels' facts."""


def _of_mx(kernel: KernelEntry) -> Problem:
    """A product of numbers that were rounded to the kernel's formats, or of bf16 activations."""
    m, n, k = PROBLEM
    operands = operands_of(kernel)
    format = MX_NAMES[operands.weights]
    random = torch.Generator().manual_seed(0)
    x, w = (torch.randn(rows, k, generator=random) for rows in (m, n))
    codes, scales = reference.quantize_mx(w, format)
    of_w = reference.dequantize(codes, format, scales).T
    out = torch.full((m, n), torch.nan, dtype=torch.bfloat16)
    activations, of_x, x_scales = "none", x.bfloat16(), None
    exact = of_x.to(of_w.dtype) @ of_w
    if operands.activations_are_mx:
        x_format = MX_NAMES[operands.activations]
        activations = "mx" if x_format == format else x_format
        x_codes, row_scales = reference.quantize_mx(x, x_format)
        of_x = mx_layout.packed_codes(x_codes.view(torch.uint8), x_format)
        x_scales = mx_layout.packed_scales(row_scales)
        exact = reference.dequantize(x_codes, x_format, row_scales) @ of_w
    weight = _packed(codes, format, activations, kernel, scales=scales)
    arguments = LinearArguments(of_x, weight, None, out, x_scales)
    return Problem(arguments, {"out": (exact, largest_error)}, tolerance(out.dtype))


def _packed(
    codes: torch.Tensor,
    format: str,
    activations: str,
    kernel: KernelEntry,
    *,
    scales: torch.Tensor | None = None,
    factors: torch.Tensor | None = None,
    block_scales: torch.Tensor | None = None,
) -> PackedWeight:
    """The weight of the problem, packed for the kernel."""
    _, n, k = PROBLEM
    data = torch.empty(packed_bytes(format, n, k), dtype=torch.uint8)
    pack(PackWeightArguments(codes, format, n, k, scales, None, activations, data))
    return PackedWeight(data, factors, block_scales, None, format, n, k, activations, kernel.arch)


def _of_rows(kernel: KernelEntry) -> Problem:
    """A product of 16-bit numbers or FP8 codes."""
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
    weight = _packed(rows, format, activations, kernel, factors=of_columns, block_scales=of_blocks)
    out = torch.full((m, n), torch.nan, dtype=a if a in TYPES else torch.bfloat16)
    of_k = of_rows if of_blocks is None else of_rows * of_blocks
    wide = of_k.repeat_interleave(-(-k // blocks) if blocks == 1 else FP8_BLOCK, 1)[:, :k]
    exact = (x.double() * wide.double()) @ rows.double().T * of_columns.double()
    arguments = LinearArguments(x, weight, None, out, of_rows)
    return Problem(arguments, {"out": (exact, largest_error)}, tolerance(out.dtype))
