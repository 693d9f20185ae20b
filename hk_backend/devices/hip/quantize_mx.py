"""`quantize_mx` on a GPU: rounds x to the codes and scales of an MX format, bit for bit as defined.

hk_backend/reference/linear.py is the definition. The kernels' argument struct is
csrc/include/hk/args/quantize_mx.hpp.
"""

from __future__ import annotations

import torch

from hk_backend import reference
from hk_backend.devices.hip import mx_layout
from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.devices.hip.operator import HipOperator, Problem
from hk_backend.kernels import Catalogue, KernelEntry, NoKernel
from hk_backend.terms.linear_arguments import QuantizeMxArguments

DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
ROWS, ROW_ELEMENTS = 2**22, 2**24
"""Exclusive bounds of the rows of x and of the elements in a row."""
STRIDE = 2**25
"""Exclusive bound of the elements from one row of x to the next."""
ALIGNMENT = 16
"""Bytes to multiples of which rows of x and the codes begin."""


class QuantizeMx(HipOperator):
    """One kernel for each dtype of x and format."""

    def prepare(self, arguments: QuantizeMxArguments, kernels: Catalogue) -> KernelCall:
        of = arguments
        m, k = of.x.shape
        if m >= ROWS or k >= ROW_ELEMENTS:
            bad("x", tuple(of.x.shape), f"fewer than {ROWS} rows of fewer than {ROW_ELEMENTS}")
        if of.codes.data_ptr() % ALIGNMENT:
            bad("codes", f"an address of {of.codes.data_ptr():#x}", f"a multiple of {ALIGNMENT}")
        x = _accessible(of.x)
        numbers = {
            "x_row": x.stride(0) if m > 1 else k,  # torch allows any stride for one element
            "rotation": of.rotation,
            "round_scale_even": of.round_scale_even,
            "packed": of.packed,
        }
        sizes = {"m": m, "k": k}
        tensors = {"x": x, "codes": of.codes, "scales": of.scales}
        work = Work(m, "rows quantised")
        kernel = kernel_of(kernels, of.x.dtype, of.format)
        return KernelCall((kernel,), tensors, numbers | sizes, sizes, work)

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        dtype = next(dtype for dtype, name in DTYPES.items() if name == kernel.facts["x"])
        format = str(kernel.facts["format"])
        m, k = kernel.tile.rows + 3, kernel.tile.columns + 128
        x = torch.randn(m, k, generator=torch.Generator().manual_seed(0)).to(dtype)
        x[1] *= 2.0**-12
        x[2, 5] = torch.inf
        rotation = 128
        codes, scales = reference.quantize_mx(x, format, "even", rotation)
        arguments = QuantizeMxArguments(
            x,
            format,
            rotation,
            round_scale_even=True,
            codes=_unwritten(mx_layout.code_bytes(format, m, k)),
            scales=_unwritten(mx_layout.scale_bytes(m, k)),
            packed=True,
        )
        packed = mx_layout.packed_codes(codes.view(torch.uint8), format)
        expected = {
            "codes": (packed, _differing),
            "scales": (mx_layout.packed_scales(scales), _differing),
        }
        return Problem(arguments, expected, limit=0.0)


OPERATOR = QuantizeMx()


def _accessible(x: torch.Tensor) -> torch.Tensor:
    """`x` with rows that begin at multiples of 16 bytes and are near enough: a copy if need be."""
    step = x.stride(0) * x.element_size() if x.shape[0] > 1 else 0
    aligned = x.data_ptr() % ALIGNMENT == 0 and step % ALIGNMENT == 0
    near = x.shape[0] < 2 or x.stride(0) < STRIDE
    return x if aligned and near else x.clone(memory_format=torch.contiguous_format)


def kernel_of(kernels: Catalogue, dtype: torch.dtype, format: str) -> KernelEntry:
    """The kernel that rounds x in a dtype to a format."""
    found = kernels.select(QuantizeMxArguments.operator, x=DTYPES[dtype], format=format)
    if isinstance(found, NoKernel):
        bad("format", f"{format} of {dtype}", " or ".join(map(str, found.valid)))
    return found


def _unwritten(size: int) -> torch.Tensor:
    return torch.full((size,), 0xFF, dtype=torch.uint8)


def _differing(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Share of bytes that differ from the expected ones."""
    return float((found != expected).float().mean())
