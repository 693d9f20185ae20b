"""`quantize_mx`: rounds a tensor to an OCP microscaling format."""

from __future__ import annotations

import torch

from hk_backend.devices import device_for
from hk_backend.ops.quantised_rows import as_rows, check_x, rows_of
from hk_backend.ops.registry import declare, define, watched
from hk_backend.ops.rotation import block_fault
from hk_backend.terms.checks import bad
from hk_backend.terms.linear_arguments import QuantizeMxArguments
from hk_backend.terms.weight_format import FORMATS, MX_BLOCK, format_named

SCALE_ROUNDINGS = ("floor", "even")


def quantize_mx(
    x: torch.Tensor, format: str, scale_rounding: str = "even", rotation: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds `x` to an OCP microscaling format, one e8m0 scale per 32 neighbours of a row.

    A scale is 2 to the power of `floor(log2(max(|x|)))` minus that of the format's largest
    element, kept within 2^-127 and 2^127 (OCP Microscaling Formats v1.0, section 6.3). `max(|x|)`
    is first rounded to the element's mantissa, so that less saturates. A block of zeros has code 0,
    2^-127. Elements are `x / scale`, rounded to nearest even and saturated; zeros keep their sign.
    A block that holds an infinity or NaN gets the scale code 0xff (NaN) and zero codes.

    Args:
        x: `[..., K]`, bfloat16, float16 or float32, any strides; K a multiple of 32.
        format: "mxfp8" (e4m3fn), "mxfp6_e2m3", "mxfp6_e3m2" or "mxfp4" (e2m1).
        scale_rounding: rounding of `max(|x|)`. "even" rounds it as above, half away from zero, but
            not past float32's last exponent. AMD Quark, AITER, vLLM's own emulation, and
            compressed-tensors for mxfp4 do so. "floor" does not round it, as in the specification.
        rotation: neighbours that are rotated together first, 32, 64 or 128, a divisor of K; 0:
            none. The rotation is in float32 (`hk_backend.reference.butterflies`). A value that is
            not finite, or a sum past float32, makes every block of 32 among them NaN.

    Returns:
        codes uint8 `[..., K * bits / 8]` in the layouts of `pack_weight` (mxfp8: float8_e4m3fn
        `[..., K]`), and scale codes uint8 `[..., K / 32]`.

    Raises:
        ValueError, DeviceError: for the same reasons as `quantize_fp8`.
    """
    if watched(x):
        result: tuple[torch.Tensor, torch.Tensor] = torch.ops.hk_backend.quantize_mx(
            x, format, scale_rounding, rotation
        )
        return result
    return _run(x, format, scale_rounding, rotation)


def _run(
    x: torch.Tensor, format: str, scale_rounding: str, rotation: int
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = _results(x, format, scale_rounding, rotation)
    rows = rows_of(x)
    stored = as_rows(codes).view(torch.uint8)
    arguments = QuantizeMxArguments(
        rows, format, rotation, scale_rounding == "even", stored, as_rows(scales)
    )
    device_for(x.device.type).run(arguments)
    return codes, scales


def _results(
    x: torch.Tensor, format: str, scale_rounding: str, rotation: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checks all arguments that a compiler sees; returns codes and scales, not yet written."""
    check_x(x)
    facts = format_named(format)
    if not facts.is_mx:
        mx = ", ".join(name for name, each in FORMATS.items() if each.is_mx)
        bad("format", repr(format), f"one of {mx}")
    if x.shape[-1] % MX_BLOCK:
        bad("x", tuple(x.shape), f"a last axis of a multiple of {MX_BLOCK}")
    if scale_rounding not in SCALE_ROUNDINGS:
        bad("scale_rounding", repr(scale_rounding), f"one of {', '.join(SCALE_ROUNDINGS)}")
    if fault := block_fault(rotation, x.shape[-1]):
        bad("rotation", *fault)
    *rows, k = x.shape
    return (
        x.new_empty((*rows, facts.row_codes(k)), dtype=facts.dtype),
        x.new_empty((*rows, k // MX_BLOCK), dtype=torch.uint8),
    )


define(
    "quantize_mx(Tensor x, str format, str scale_rounding, int rotation) -> (Tensor, Tensor)",
    _run,
    _results,
)
declare(quantize_mx, QuantizeMxArguments)
