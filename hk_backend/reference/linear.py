"""Definitions of linear layers, their weight formats and quantisers: plain torch, exact in float64.

Everything is defined on values; only `pack_bits` and `unpack_bits` know how codes lie in bytes.
"""

from __future__ import annotations

from functools import cache

import torch

from hk_backend.reference.butterflies import rotated_float32
from hk_backend.terms.weight_format import (
    FORMATS,
    FP8_BLOCK,
    MIN_FP8_SCALE,
    MX_BLOCK,
    ROTATED,
    Format,
    format_of_fp8,
)

E8M0_NAN = 0xFF
_LAYOUT = {"mxfp6_e2m3": (2, 3), "mxfp6_e3m2": (3, 2), "mxfp4": (2, 1)}
"""Exponent and mantissa bits of the formats for which torch has no dtype."""


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    format: str,
    scales: torch.Tensor | None = None,
    *,
    activations: str = "none",
    input_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    rotation: int = 0,
) -> torch.Tensor:
    """Defines `hk_backend.ops.linear`, for a weight in the form that `pack_weight` takes.

    Returns float64 `[..., N]`.
    """
    rounded = round_activations(x, format, activations, input_scale, rotation)
    out = rounded @ dequantize(weight, format, scales).T
    return out if bias is None else out + bias.double()


def round_activations(
    x: torch.Tensor,
    format: str,
    activations: str,
    input_scale: torch.Tensor | None = None,
    rotation: int = 0,
) -> torch.Tensor:
    """Activations that `linear` multiplies by the weight, float64.

    They are rotated in float32, quantised and dequantised, as far as the arguments ask for it.
    """
    if activations in ROTATED:
        x = rotated_float32(x, rotation)
    target = FORMATS[format].of_activations(activations)
    if target is None:
        return x.double()
    if target.is_mx:
        blocks, mx_scales = quantize_mx(x, target.name)
        return dequantize(blocks, target.name, mx_scales)
    given = None
    if input_scale is not None:
        given = input_scale.float().reshape(1)
    return dequantize_rows(*quantize_fp8(x, activations, given, target.dtype))


def dequantize_rows(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Values `[..., K]` of FP8 activations, float64.

    `scales` have the forms that `quantize_fp8` returns: one for all, one per row, or one per 128
    neighbours of a row.
    """
    if scales.dim() and scales.shape[-1] > 1:
        scales = scales.repeat_interleave(FP8_BLOCK, -1)[..., : codes.shape[-1]]
    return codes.double() * scales.double()


def dequantize(
    weight: torch.Tensor, format: str, scales: torch.Tensor | None = None
) -> torch.Tensor:
    """Values `[..., K]` of a weight (see `pack_weight`), float64, always exact."""
    facts = FORMATS[format]
    if facts.is_mx:
        assert scales is not None
        factors = mx_scale_values(scales).repeat_interleave(MX_BLOCK, -1)
        return decode(weight, facts) * factors
    values = weight.double()
    return values if scales is None else values * _spread(scales, weight.shape)


def mx_scale_values(codes: torch.Tensor) -> torch.Tensor:
    """Values of e8m0 codes, float64: powers of two from 2^-127, and NaN for 0xff."""
    codes = codes.view(torch.uint8)
    return power_of_two(codes.to(torch.int64) - 127).masked_fill(codes == E8M0_NAN, torch.nan)


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2 to the power of integers in the range of normal float64 numbers, exact by its bits."""
    bits = (exponent.to(torch.int64) + 1023) << 52
    return bits.view(torch.float64)


def _spread(scales: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """FP8 weight scales of any kind, in a shape that broadcasts to the weight's elements."""
    n, k = shape
    scales = scales.double()
    if scales.numel() == 1:
        return scales.reshape(1, 1)
    if tuple(scales.shape) in ((n,), (n, 1)):
        return scales.reshape(n, 1)
    by_row = scales.repeat_interleave(FP8_BLOCK, 0)[:n]
    return by_row.repeat_interleave(FP8_BLOCK, 1)[:, :k]


def quantize_fp8(
    x: torch.Tensor,
    granularity: str = "token",
    scale: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float8_e4m3fn,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Defines `hk_backend.ops.quantize_fp8`, by the float32 operations of vLLM's `QuantFP8`."""
    facts = format_of_fp8(dtype)
    largest, values = facts.quantised_max, x.float()
    if granularity in ("token_block", "block"):
        rows = FP8_BLOCK if granularity == "block" else 1
        dynamic = _block_max(values, rows) / largest
    elif granularity == "tensor":
        dynamic = (values.abs().amax() if x.numel() else values.new_zeros(())).reshape(1) / largest
    else:
        dynamic = values.abs().amax(-1, keepdim=True) / largest
    scales = dynamic.clamp(min=MIN_FP8_SCALE / largest) if scale is None else scale
    spread = scales
    if granularity in ("token_block", "block"):
        spread = scales.repeat_interleave(FP8_BLOCK, -1)[..., : x.shape[-1]]
        if granularity == "block":
            spread = spread.repeat_interleave(FP8_BLOCK, 0)[: x.shape[0]]
    divide = scale is None and granularity in ("token_block", "block")
    scaled = values / spread if divide else values * spread.reciprocal()
    codes = scaled.clamp(-largest, largest).to(dtype).view(torch.uint8)
    nan = 0x80 if dtype == torch.float8_e4m3fnuz else 0x7F
    return codes.masked_fill(scaled.isnan(), nan).view(dtype), scales


def _block_max(values: torch.Tensor, rows: int) -> torch.Tensor:
    """Largest absolute value per `rows` x 128 elements."""
    largest = [part.abs().amax(-1) for part in values.split(FP8_BLOCK, -1)]
    by_column = torch.stack(largest, -1)
    if rows == 1:
        return by_column
    return torch.stack([part.amax(0) for part in by_column.split(rows)])


def quantize_mx(
    x: torch.Tensor, format: str, scale_rounding: str = "even", rotation: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Defines `hk_backend.ops.quantize_mx`; after the rotation in float64, only rounding errs."""
    facts = FORMATS[format]
    if rotation:
        x = rotated_float32(x, rotation)
    *rows, k = x.shape
    blocks = x.double().reshape(*rows, k // MX_BLOCK, MX_BLOCK)
    broken = ~blocks.isfinite().all(-1)
    blocks = blocks.masked_fill(broken[..., None], 0.0)
    largest = blocks.abs().amax(-1)
    if scale_rounding == "even":
        mantissa, exponent = torch.frexp(largest)  # mantissa in [0.5, 1), or 0
        steps = 2.0 ** (facts.mantissa_bits + 1)
        largest = (mantissa * steps + 0.5).floor() / steps * power_of_two(exponent)
    # stays within float32's last exponent, past which the largest element would be infinite
    exponent = (torch.frexp(largest).exponent - 1).clamp(max=127) - facts.max_exponent
    exponent = exponent.masked_fill(largest == 0, -127).clamp(-127, 127)
    elements = (blocks * power_of_two(-exponent[..., None])).reshape(x.shape)
    scales = (exponent + 127).to(torch.uint8).masked_fill(broken, E8M0_NAN)
    return encode(elements, facts), scales


def encode(values: torch.Tensor, format: Format) -> torch.Tensor:
    """Element codes, in bytes, of values `[..., K]`: to nearest even, saturating. Values are not
    NaN."""
    values = values.clamp(-format.max, format.max)
    if format.bits == 8:
        return values.to(format.dtype)
    table = positive_elements(format.name)
    size = values.abs().double().contiguous()
    above = torch.searchsorted(table, size).clamp(max=len(table) - 1)
    below = (above - 1).clamp(min=0)
    up, down = table[above] - size, size - table[below]
    codes = torch.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    sign = torch.signbit(values).to(torch.int64) << (format.bits - 1)
    return pack_bits(codes | sign, format.bits)


def decode(codes: torch.Tensor, format: Format) -> torch.Tensor:
    """Element values of codes in bytes, float64 `[..., K]`."""
    if format.bits == 8:
        return codes.double()
    positive = positive_elements(format.name)
    return torch.cat([positive, -positive])[unpack_bits(codes, format.bits)]


@cache
def positive_elements(format: str) -> torch.Tensor:
    """Values of all codes without the sign bit, in the order of the codes, float64."""
    exponent_bits, mantissa_bits = _LAYOUT[format]
    codes = torch.arange(2 ** (exponent_bits + mantissa_bits))
    exponent, mantissa = codes >> mantissa_bits, codes & (2**mantissa_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    significand: torch.Tensor = mantissa.double() / 2.0**mantissa_bits + (exponent > 0)
    return significand * power_of_two(exponent.clamp(min=1) - bias)


def pack_bits(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Packs codes `[..., K]` into a stream, lowest bit first: uint8 `[..., K * bits / 8]`."""
    single = (codes[..., None] >> torch.arange(bits)) & 1
    octets = single.reshape(*codes.shape[:-1], codes.shape[-1] * bits // 8, 8)
    return (octets << torch.arange(8)).sum(-1).to(torch.uint8)


def unpack_bits(stream: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes of a stream that `pack_bits` made, int64 `[..., K]`."""
    single = (stream.to(torch.int64)[..., None] >> torch.arange(8)) & 1
    codes = single.reshape(*stream.shape[:-1], stream.shape[-1] * 8 // bits, bits)
    return (codes << torch.arange(bits)).sum(-1)
