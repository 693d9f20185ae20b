"""The envelope of `linear`: layers that it serves, decided from host facts alone."""

from __future__ import annotations

from hk_backend.ops.rotation import rotation_fault
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused
from hk_backend.terms.weight_format import FLOAT_DTYPES, FORMATS, Format


def limits(request: LinearRequest) -> Verdict:
    """Whether the operator itself, on any device, computes `request`."""
    format = FORMATS.get(request.format)
    if format is None:
        return refused(f"weight format {request.format!r} is not one of {', '.join(FORMATS)}")
    for name, dtype in (
        ("dtype", request.dtype),
        ("out_dtype", request.out_dtype),
        ("bias_dtype", request.bias_dtype),
    ):
        if dtype not in (*FLOAT_DTYPES, None):
            return refused(f"{name} {dtype} is not one of bfloat16, float16, float32")
    if not format.is_quantised and request.dtype != format.dtype:
        return refused(f"x in {request.dtype} with a weight in {format.dtype}")
    if request.activations not in format.activations:
        return refused(f"activations {request.activations!r} with a weight in {request.format}")
    if request.scale_kind not in (None, *scale_kinds(format)):
        return refused(f"scales per {request.scale_kind} with a weight in {request.format}")
    if request.n < 1:
        return refused(f"{request.n} output features")
    if request.k < 1 or request.k % format.k_multiple:
        return refused(
            f"{request.k} input features are not a positive multiple of {format.k_multiple}"
        )
    if fault := rotation_fault(request.rotation, request.activations, request.k):
        return refused("a rotation of {}, not {}".format(*fault))
    return SERVED


def scale_kinds(format: Format) -> tuple[str, ...]:
    """The kinds of weight scales that a format may have."""
    if format.is_fp8:
        return ("tensor", "channel", "block")
    return ("mx",) if format.is_mx else ("none",)
