"""Linear layers: their tensors, their float64 result, and the error that a kernel may have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from hk_backend.kernels.gemm_operands import LAYERS
from hk_backend.ops import pack_weight, quantize_fp8, quantize_mx
from hk_backend.reference.linear import dequantize
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import MX_BLOCK

MOST_ERROR = 2.0**-8
"""Most error, in units of the sum of absolute products: the result is rounded to bf16, 2^-9."""
BLOCK = 128
GRANULARITIES = {
    "fp8_tensor": ("tensor", "tensor"),
    "fp8_channel": ("token", "channel"),
    "fp8_block": ("token_block", "block"),
}
"""Elements that share a scale: of the activations, and of the weight."""
MX = {
    "mxfp4": ("mxfp4", "mxfp4"),
    "mxfp8": ("mxfp8", "mxfp8"),
    "mxfp4_mxfp8": ("mxfp8", "mxfp4"),
    "mxfp4_weight_only": ("bf16", "mxfp4"),
    "mxfp8_weight_only": ("bf16", "mxfp8"),
}
"""Formats of the activations and of the weight, with a scale for each 32 elements of MX.

MXFP6 is missing: no kernel of stock multiplies it, and neither can Triton's `tl.dot_scaled`.
"""
FORMATS = ("bf16", *GRANULARITIES, *MX)


@dataclass(frozen=True)
class Layer:
    """x [m, k] times a weight [n, k]; `format`: one of FORMATS."""

    format: str
    m: int
    n: int
    k: int

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Fewest bytes to move: both operands and the result, once each."""
        of = LAYERS[self.format]
        operands = sum(
            rows * self.k * bits / 8 + (rows * self.k / MX_BLOCK if mx else 0)
            for rows, bits, mx in zip(
                (self.m, self.n), of.bits, (of.activations_are_mx, of.weights_are_mx), strict=True
            )
        )
        return operands + 2 * self.m * self.n

    def operands(self, seed: int | None = 0) -> Operands:
        """Random operands with a few outliers; zeros if `seed` is None."""
        x, weight = self._filled(self.m, seed, 0), self._filled(self.n, seed, 1)
        if self.format == "bf16":
            return Operands(self, x, weight)
        if self.format in MX:
            in_mx = [*map(_in_mx, (x, weight), MX[self.format])]
            (codes, x_scale), (weight_codes, weight_scale) = in_mx
            return Operands(self, codes, weight_codes, x_scale, weight_scale)
        if seed is None:
            return self._zeros()
        of_x, of_weight = GRANULARITIES[self.format]
        codes, x_scale = quantize_fp8(x, of_x)
        weight_codes, weight_scale = quantize_fp8(weight, of_weight)
        return Operands(self, codes, weight_codes, x_scale, weight_scale)

    def _filled(self, rows: int, seed: int | None, number: int) -> torch.Tensor:
        if seed is None:
            return torch.zeros(rows, self.k, dtype=torch.bfloat16)
        random = torch.Generator().manual_seed(2 * seed + number)
        values = torch.randn(rows, self.k, generator=random)
        values[:: max(rows // 3, 1), :: max(self.k // 5, 1)] *= 20
        return values.bfloat16()

    def _zeros(self) -> Operands:
        steps = -(-self.k // BLOCK)
        shapes = {
            "fp8_tensor": ((1,), (1,)),
            "fp8_channel": ((self.m, 1), (self.n, 1)),
            "fp8_block": ((self.m, steps), (-(-self.n // BLOCK), steps)),
        }[self.format]
        x, weight = (
            torch.zeros(rows, self.k, dtype=torch.float8_e4m3fn) for rows in (self.m, self.n)
        )
        return Operands(self, x, weight, *(torch.ones(shape) for shape in shapes))


def _in_mx(values: torch.Tensor, format: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Values in an MX format, with their scales; bf16 stays as it is."""
    return (values, None) if format == "bf16" else quantize_mx(values, format)


@dataclass(frozen=True)
class Operands:
    """Activations [m, k] and weight [n, k], with the scales of FP8 and MX codes."""

    layer: Layer
    x: torch.Tensor
    weight: torch.Tensor
    x_scale: torch.Tensor | None = None
    weight_scale: torch.Tensor | None = None

    @cached_property
    def values(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both operands in float64, dequantised."""
        if self.layer.format in MX:
            of_x, of_weight = MX[self.layer.format]
            x = dequantize(self.x, of_x, self.x_scale)
            return x, dequantize(self.weight, of_weight, self.weight_scale)
        if self.x_scale is None or self.weight_scale is None:
            return self.x.double(), self.weight.double()
        rows = self.x_scale.double()
        if self.layer.format == "fp8_block":
            rows = rows.repeat_interleave(BLOCK, dim=1)[:, : self.layer.k]
        weight = dequantize(self.weight, "fp8_e4m3fn", self.weight_scale)
        return self.x.double() * rows, weight

    def packed(self) -> PackedWeight:
        """The weight as HK's device packs it."""
        if self.weight_scale is None:
            return pack_weight(self.weight, "bf16")
        if self.layer.format in MX:
            of_x, format = MX[self.layer.format]
            activations = {"bf16": "none", format: "mx"}.get(of_x, of_x)
            return pack_weight(
                self.weight, format, scales=self.weight_scale, activations=activations
            )
        activations = GRANULARITIES[self.layer.format][0]
        return pack_weight(
            self.weight, "fp8_e4m3fn", scales=self.weight_scale, activations=activations
        )

    def error_of(self, out: torch.Tensor) -> float:
        """The largest error of `out`, over the largest one that a right result may have.

        Compares with the definition in float64; a NaN counts as infinite.
        """
        x, weight = self.values
        mass = (x.abs() @ weight.abs().T).clamp_min(1e-30)
        error = ((out.double() - x @ weight.T).abs() / mass).max() / MOST_ERROR
        return float(torch.where(error.isnan(), torch.inf, error))
