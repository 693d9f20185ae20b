"""`quantize_fp8` and `quantize_mx`: the public operators that round to a quantised format."""

from __future__ import annotations

import torch

from hk_backend.devices import device_for
from hk_backend.ops.registry import define, watched
from hk_backend.ops.rotation import block_fault
from hk_backend.terms.checks import bad, check_no_grad
from hk_backend.terms.linear_arguments import QuantizeFp8Arguments, QuantizeMxArguments
from hk_backend.terms.weight_format import (
    FLOAT_DTYPES,
    FORMATS,
    FP8_BLOCK,
    MIN_FP8_SCALE,
    MX_BLOCK,
    format_named,
    format_of_fp8,
)

GRANULARITIES = ("token", "tensor", "token_block", "channel", "block")
SCALE_ROUNDINGS = ("floor", "even")


def quantize_fp8(
    x: torch.Tensor,
    granularity: str = "token",
    scale: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds `x` to FP8 codes and float32 scales: `x` is about `codes.float() * scales`.

    A dynamic scale is `max(|x|) / qmax`, at least `1 / (512 * qmax)`, with qmax 448 (e4m3fn) or
    224 (e4m3fnuz). Elements are `x * (1 / scale)`, or `x / scale` in blocks with dynamic scales.
    All are computed in float32, saturated at qmax and rounded to nearest even. vLLM's
    `QuantFP8.forward_native` does exactly the same
    (model_executor/layers/quantization/input_quant_fp8.py).

    NaN stays NaN. NaN or an infinity makes a dynamic group NaN; a given scale saturates infinities.
    The bytes are the same with every version of torch, although its own conversion of large numbers
    has changed.

    Args:
        x: `[..., K]`, bfloat16, float16 or float32, any strides.
        granularity: elements that share a scale, and the shape of the scales:
            "token": a row of K, `[..., 1]`; "tensor": all of x, `[1]`;
            "token_block": 128 neighbours of a row, `[..., ceil(K / 128)]`;
            of a weight `[N, K]`: "channel": a row, `[N, 1]`; "block": 128 x 128 elements,
            `[ceil(N / 128), ceil(K / 128)]`.
        scale: float32 scales in that shape, used unchanged; None computes them.
        dtype: float8_e4m3fn or float8_e4m3fnuz.

    Returns:
        codes `[..., K]` in `dtype`, and the scales, float32.

    Raises:
        ValueError: an argument does not fit; the message names it, its value and what would be
            valid.
        DeviceError: the device has no linear kernels.
    """
    if watched(x):
        result: tuple[torch.Tensor, torch.Tensor] = torch.ops.hk_backend.quantize_fp8(
            x, granularity, scale, dtype
        )
        return result
    return _quantize_fp8(x, granularity, scale, dtype)


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
    return _quantize_mx(x, format, scale_rounding, rotation)


def _quantize_fp8(
    x: torch.Tensor, granularity: str, scale: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = _fp8_results(x, granularity, scale, dtype)
    rows = _rows(x)
    m, k = rows.shape
    by_block = granularity in ("token_block", "block")
    group_rows = {"tensor": m, "block": FP8_BLOCK}.get(granularity, 1)
    group = (group_rows, FP8_BLOCK if by_block else k)
    if scale is not None:
        scales.copy_(scale)
    dynamic = scale is None
    if m == 0:
        if dynamic:  # the one scale of an empty tensor
            scales.fill_(MIN_FP8_SCALE / format_of_fp8(dtype).quantised_max)
        return codes, scales
    arguments = QuantizeFp8Arguments(
        rows, group, by_block and dynamic, dynamic, codes.view(m, k), _as_rows(scales)
    )
    device_for(x.device.type).run(arguments)
    return codes, scales


def _fp8_results(
    x: torch.Tensor, granularity: str, scale: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checks all arguments that a compiler sees; returns codes and scales, not yet written."""
    _check_x(x)
    format_of_fp8(dtype)
    if granularity not in GRANULARITIES:
        bad("granularity", repr(granularity), f"one of {', '.join(GRANULARITIES)}")
    if granularity in ("channel", "block") and x.dim() != 2:
        bad("x", tuple(x.shape), f"the shape [N, K] with granularity {granularity!r}")
    blocks = -(-x.shape[-1] // FP8_BLOCK)
    shape = {
        "token": (*x.shape[:-1], 1),
        "channel": (*x.shape[:-1], 1),
        "tensor": (1,),
        "token_block": (*x.shape[:-1], blocks),
        "block": (-(-x.shape[0] // FP8_BLOCK), blocks),
    }[granularity]
    scales = x.new_empty(shape, dtype=torch.float32)
    if scale is not None and (
        scale.shape != scales.shape or scale.dtype != torch.float32 or scale.device != x.device
    ):
        found = f"{scale.dtype} {list(scale.shape)} on {scale.device}"
        bad("scale", found, f"float32 {list(scales.shape)} on {x.device}")
    return x.new_empty(x.shape, dtype=dtype), scales


def _quantize_mx(
    x: torch.Tensor, format: str, scale_rounding: str, rotation: int
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = _mx_results(x, format, scale_rounding, rotation)
    rows = _rows(x)
    stored = _as_rows(codes).view(torch.uint8)
    arguments = QuantizeMxArguments(
        rows, format, rotation, scale_rounding == "even", stored, _as_rows(scales)
    )
    device_for(x.device.type).run(arguments)
    return codes, scales


def _mx_results(
    x: torch.Tensor, format: str, scale_rounding: str, rotation: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checks all arguments that a compiler sees; returns codes and scales, not yet written."""
    _check_x(x)
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


def _check_x(x: torch.Tensor) -> None:
    if x.dtype not in FLOAT_DTYPES:
        bad("x", x.dtype, "bfloat16, float16 or float32")
    if x.dim() < 1 or x.shape[-1] < 1:
        bad("x", tuple(x.shape), "the shape [..., K] with K at least 1")
    check_no_grad(x=x)


def _rows(x: torch.Tensor) -> torch.Tensor:
    """`x` as `[M, K]` with contiguous rows, copied only if that is necessary."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _as_rows(result: torch.Tensor) -> torch.Tensor:
    return result.view(-1, result.shape[-1])


define(
    "quantize_fp8(Tensor x, str granularity, Tensor? scale, ScalarType dtype) -> (Tensor, Tensor)",
    _quantize_fp8,
    _fp8_results,
)
define(
    "quantize_mx(Tensor x, str format, str scale_rounding, int rotation) -> (Tensor, Tensor)",
    _quantize_mx,
    _mx_results,
)
