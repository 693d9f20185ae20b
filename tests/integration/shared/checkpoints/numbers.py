"""Codes and scales by torch and ml_dtypes, computed as each tool computes them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from tests.integration.shared.checkpoints.scheme import FP8_MAX, Layer

FP8 = torch.float8_e4m3fn
MX_DTYPES = {
    "mxfp8": (ml_dtypes.float8_e4m3fn, 8),
    "mxfp6_e2m3": (ml_dtypes.float6_e2m3fn, 6),
    "mxfp6_e3m2": (ml_dtypes.float6_e3m2fn, 6),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 4),
}


def fp8_tensor(weight: torch.Tensor) -> Layer:
    """One scale, a scalar as `fp8`, modelopt and Quark store it."""
    scale = weight.abs().max() / FP8_MAX
    return _fp8(weight, scale, scale)


def fp8_channel(weight: torch.Tensor) -> Layer:
    """One scale per output channel, `[n]`."""
    scale = weight.abs().amax(1) / FP8_MAX
    return _fp8(weight, scale, scale[:, None])


def fp8_column(weight: torch.Tensor) -> Layer:
    """One scale per output channel as a column, `[n, 1]`."""
    layer = fp8_channel(weight)
    scale = layer.tensors["weight_scale"][:, None].contiguous()
    return Layer(layer.tensors | {"weight_scale": scale}, layer.values)


def fp8_block(weight: torch.Tensor, suffix: str = "weight_scale_inv") -> Layer:
    """One scale per 128 x 128 elements, in the shapes of DeepSeek's checkpoints."""
    n, k = weight.shape
    largest = weight.abs().reshape(n // 128, 128, k // 128, 128).amax((1, 3))
    scale = largest / FP8_MAX
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return _fp8(weight, scale, spread, suffix)


def fp8_block_4d(weight: torch.Tensor) -> Layer:
    """One scale per 128 x 128 elements, with axes of one, as modelopt exports them."""
    layer = fp8_block(weight, "weight_scale")
    scale = layer.tensors["weight_scale"][:, None, :, None].contiguous()
    return Layer(layer.tensors | {"weight_scale": scale}, layer.values)


def _fp8(
    weight: torch.Tensor, scale: torch.Tensor, spread: torch.Tensor, suffix: str = "weight_scale"
) -> Layer:
    """FP8 codes of `weight`; `scale` is stored, and `spread` multiplies the codes."""
    codes = (weight / spread).clamp(-FP8_MAX, FP8_MAX).to(FP8)
    return Layer({"weight": codes, suffix: scale}, codes.float() * spread)


def mx(weight: torch.Tensor, format: str) -> Layer:
    """OCP MX by ml_dtypes: scales of blocks of 32 along k, codes as a stream of bits."""
    dtype, bits = MX_DTYPES[format]
    largest = float(ml_dtypes.finfo(dtype).max)
    n, k = weight.shape
    blocks = weight.double().numpy().reshape(n, k // 32, 32)
    # ml_dtypes makes -0 of a NaN in 4 and 6 bits, and a block of zeros has no exponent
    assert np.isfinite(blocks).all()
    assert blocks.any(-1).all()
    exponents = np.floor(np.log2(np.abs(blocks).max(-1))) - np.floor(np.log2(largest))
    scaled = np.clip(blocks / 2.0 ** exponents[..., None], -largest, largest)
    codes = scaled.astype(dtype)
    values = codes.astype(np.float64) * 2.0 ** exponents[..., None]
    stored = np.unpackbits(codes.view(np.uint8).reshape(n, k, 1), axis=-1, bitorder="little")
    stream = np.packbits(stored[..., :bits].reshape(n, k * bits), axis=-1, bitorder="little")
    packed = torch.from_numpy(stream)
    return Layer(
        {
            "weight": packed.view(FP8) if bits == 8 else packed,
            "weight_scale": torch.from_numpy((exponents + 127).astype(np.uint8)),
        },
        torch.from_numpy(values.reshape(n, k)).float(),
    )
