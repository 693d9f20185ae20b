"""Kernels that multiply rows by a packed weight, or the reason why there are none."""

from __future__ import annotations

import torch

from hk_backend.devices.hip.weight_layout import FORMATS_OF, READERS
from hk_backend.kernels import Catalogue, Family
from hk_backend.kernels.gemm_operands import Operands, family
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import FORMATS

ELEMENTS = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float8_e4m3fn: "e4m3",
}
"""Names of dtypes in the kernels' facts."""
TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
"""Numbers of dtypes in `hk::GemmType`."""
ALIGNMENT = 16
"""Alignment of every row, in bytes."""


def find(request: LinearRequest, kernels: Catalogue) -> Family | Verdict:
    """The kernels that compute `request`, or one line that says why there are none."""
    if not kernels.families.get(READERS):
        return refused(f"no linear kernels for {kernels.arch} yet")
    if request.x_format not in (None, FORMATS[request.format]):
        pair = f"{request.format} weights with activations {request.activations!r}"
        return refused(f"{kernels.arch} has no kernels for {pair}")
    if request.format not in FORMATS_OF:
        there = ", ".join(FORMATS_OF)
        return refused(f"{kernels.arch} has no kernels for {request.format} weights, only {there}")
    whole = ALIGNMENT // FORMATS_OF[request.format].itemsize
    if request.k % whole:
        return refused(f"K = {request.k} is not a multiple of {whole}, 16 bytes of a row")
    found = of_request(request, kernels)
    if not found:
        a = _multiplied(request)
        return refused(f"{kernels.arch} has no kernels for x in {a} with {request.format} weights")
    return found


def of_request(request: LinearRequest, kernels: Catalogue) -> Family:
    """The kernels that multiply the layer's rows, once these are rounded."""
    by_block = request.scale_kind == "block" or request.activations == "token_block"
    return family_of(kernels, _multiplied(request), request.format, by_block)


def _multiplied(request: LinearRequest) -> torch.dtype:
    """The dtype in which the kernels take x."""
    return request.dtype if request.activations == "none" else FORMATS[request.format].dtype


def family_of(kernels: Catalogue, a: torch.dtype, format: str, by_block: bool) -> Family:
    """The kernels that multiply rows in dtype `a` with weights of a format. `by_block`: either side
    has a scale for each 128 elements of the depth."""
    activations, weights = (ELEMENTS.get(each, "") for each in (a, FORMATS[format].dtype))
    scales = "blocks" if by_block else "vectors"
    return family(kernels, Operands(activations, weights, scales))
