"""`quantize_fp8` on a GPU: rounds activations to FP8 codes and scales, bit for bit as defined.

hk_backend/reference/linear.py is the definition. The kernels' argument struct is
csrc/include/hk/args/quantize_fp8.hpp.
"""

from __future__ import annotations

import torch

from hk_backend import reference
from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.devices.hip.operator import HipOperator, Problem
from hk_backend.kernels import Catalogue, KernelEntry, NoKernel
from hk_backend.terms.linear_arguments import QuantizeFp8Arguments
from hk_backend.terms.weight_format import FP8_BLOCK

DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
CODES = torch.float8_e4m3fn
ROWS, ROW_ELEMENTS = 2**22, 2**28
"""Exclusive bounds of the rows of x and of the elements in a row."""
SCALES = 2**29
"""Exclusive bound of the number of scales."""
EVERYTHING = 31
"""Shift that makes any row or column number 0."""
SCALES_OF = {"token": "token", "token_block": "block", "tensor": "given"}
"""The kernels' fact `scale`, by how a layer's activations are rounded."""
GRANULARITIES = {"block": "token_block", "given": "tensor"}
"""Granularity of a kernel's self-check, by its fact `scale`; "token" for all others."""


class QuantizeFp8(HipOperator):
    """One kernel for each dtype of x and kind of scale."""

    def prepare(self, arguments: QuantizeFp8Arguments, kernels: Catalogue) -> KernelCall:
        of = arguments
        m, k = of.x.shape
        if of.codes.dtype != CODES:
            bad("dtype", of.codes.dtype, CODES)
        if m >= ROWS or k >= ROW_ELEMENTS:
            bad("x", tuple(of.x.shape), f"fewer than {ROWS} rows of fewer than {ROW_ELEMENTS}")
        if of.scales.numel() >= SCALES:
            bad("x", tuple(of.x.shape), f"fewer than {SCALES} scales")
        numbers = {
            "x_row": of.x.stride(0) if m > 1 else k,  # torch allows any stride for one element
            "row_shift": _shift(of.group[0], m),
            "column_shift": _shift(of.group[1], k),
            "scale_row": of.scales.stride(0),
            "scale_column": of.scales.stride(1),
        }
        sizes = {"m": m, "k": k}
        tensors = {"x": of.x, "codes": of.codes, "scales": of.scales}
        work = Work(m, "rows quantised")
        return KernelCall((_kernel_of(of, kernels),), tensors, numbers | sizes, sizes, work)

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        dtype = next(dtype for dtype, name in DTYPES.items() if name == kernel.facts["x"])
        granularity = GRANULARITIES.get(str(kernel.facts["scale"]), "token")
        m, k = 3, kernel.tile.columns - 8
        x = torch.randn(m, k, generator=torch.Generator().manual_seed(0)).to(dtype)
        x[1, ::3] *= 2.0**-12  # denormal codes
        given = torch.tensor([0.0123]) if granularity == "tensor" else None
        codes, scales = reference.quantize_fp8(x, granularity, given)
        by_block = granularity == "token_block"
        arguments = QuantizeFp8Arguments(
            x,
            (m if given is not None else 1, FP8_BLOCK if by_block else k),
            by_block,
            given is None,
            torch.full((m, k), torch.nan).to(CODES),
            torch.full((m, scales.shape[-1]), torch.nan) if given is None else given.view(1, 1),
        )
        expected = {"codes": (codes, _differing), "scales": (scales, _differing)}
        return Problem(arguments, expected, limit=0.0)


OPERATOR = QuantizeFp8()


def _kernel_of(of: QuantizeFp8Arguments, kernels: Catalogue) -> KernelEntry:
    """The kernel that computes a call. Raises `ValueError` if there is none."""
    scale = _scale_of(of)
    if scale is None:
        kind = "dynamic" if of.dynamic else "given"
        how = "divided by" if of.divide else "multiplied with the reciprocal of"
        rows, columns = of.group
        expected = f"dynamic ones of rows or of {FP8_BLOCK} neighbours (divided), or given ones"
        bad("granularity", f"elements {how} {kind} scales of {rows} x {columns}", expected)
    return _of_scale(kernels, of.x.dtype, scale, of.x.shape[1])


def kernel_of_layer(
    kernels: Catalogue, dtype: torch.dtype, activations: str, k: int
) -> KernelEntry:
    """The kernel that rounds the x `[M, k]` of a linear layer, by the layer's `activations`."""
    return _of_scale(kernels, dtype, SCALES_OF[activations], k)


def _of_scale(kernels: Catalogue, dtype: torch.dtype, scale: str, k: int) -> KernelEntry:
    kernel = _select(kernels, dtype, scale)
    if scale == "token" and k > kernel.tile.columns:
        return _select(kernels, dtype, "token_long")
    return kernel


def _select(kernels: Catalogue, dtype: torch.dtype, scale: str) -> KernelEntry:
    found = kernels.select(QuantizeFp8Arguments.operator, x=DTYPES[dtype], scale=scale)
    if isinstance(found, NoKernel):
        bad("x", dtype, " or ".join(map(str, found.valid)))
    return found


def _scale_of(of: QuantizeFp8Arguments) -> str | None:
    """The kernels' fact `scale` for a call; None if no kernel computes or takes such scales."""
    rows, columns = of.group
    if not of.dynamic:
        return None if of.divide else "given"
    if of.divide:
        return "block" if (rows, columns) == (1, FP8_BLOCK) else None
    return "token" if rows == 1 and columns >= of.x.shape[1] else None


def _shift(group: int, length: int) -> int:
    """Shift that turns the number of a row or column into the number of its group."""
    if group >= length:
        return EVERYTHING
    if group & (group - 1):
        bad("granularity", f"groups of {group} in {length}", "a power of two, or all")
    return group.bit_length() - 1


def _differing(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Share of bytes that differ from the expected ones."""
    pair = (tensor.view(torch.uint8).flatten() for tensor in (found, expected))
    return float((next(pair) != next(pair)).float().mean())
