"""Kernels that multiply rows by a packed weight, or the reason why there are none."""

from __future__ import annotations

import torch

from hk_backend.devices.hip.weight_layout import FORMATS_OF, READERS
from hk_backend.kernels import Catalogue, Family
from hk_backend.kernels.gemm_operands import MX_ELEMENTS, Operands, family
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import FORMATS, Format

ELEMENTS = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float8_e4m3fn: "e4m3",
}
"""Names of dtypes in the kernels' facts."""
TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
"""Numbers of dtypes in `hk::GemmType`."""
ROTATES_ALONE = "rotated"
"""Activations that are rotated and not rounded: no kernel of this device does that."""
ALIGNMENT = 16
"""Alignment of every row, in bytes."""


def find(request: LinearRequest, kernels: Catalogue) -> Family | Verdict:
    """The kernels that compute `request`, or one line that says why there are none."""
    if not kernels.families.get(READERS):
        return refused(f"no linear kernels for {kernels.arch} yet")
    if request.format not in FORMATS_OF:
        there = ", ".join(FORMATS_OF)
        return refused(f"{kernels.arch} has no kernels for {request.format} weights, only {there}")
    whole = ALIGNMENT // FORMATS_OF[request.format].itemsize
    if request.k % whole:
        return refused(f"K = {request.k} is not a multiple of {whole}, 16 bytes of a row")
    found = of_request(request, kernels)
    if not found or request.activations == ROTATES_ALONE:
        how = f"activations {request.activations!r}" if FORMATS[request.format].is_mx else "x"
        a = f"{how} in {request.dtype}" if request.x_format is None else how
        return refused(f"{kernels.arch} has no kernels for {a} with {request.format} weights")
    return found


def of_request(request: LinearRequest, kernels: Catalogue) -> Family:
    """The kernels that multiply the layer's rows, once these are rounded."""
    by_block = request.scale_kind == "block" or request.activations == "token_block"
    return family_of(kernels, request.format, request.x_format or request.dtype, by_block)


def family_of(
    kernels: Catalogue, format: str, x: torch.dtype | Format, by_block: bool = False
) -> Family:
    """The kernels that multiply x with weights of a format.

    Args:
        x: the format that x is rounded to, or its dtype if it is not.
        by_block: whether either side has a scale for each 128 elements of the depth.
    """
    return family(kernels, operands_of(format, x, by_block))


def operands_of(format: str, x: torch.dtype | Format, by_block: bool = False) -> Operands:
    """The operands of the kernels of `family_of`, whether there are any or not."""
    if FORMATS[format].is_mx:
        if isinstance(x, Format):
            return Operands(MX_ELEMENTS.get(x.name, ""), MX_ELEMENTS[format], "mx")
        return Operands(ELEMENTS.get(x, ""), MX_ELEMENTS[format], "mx_weights")
    dtype = x.dtype if isinstance(x, Format) else x
    scales = "blocks" if by_block else "vectors"
    return Operands(ELEMENTS.get(dtype, ""), ELEMENTS[FORMATS[format].dtype], scales)
