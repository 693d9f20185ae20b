"""Quantised layers as modules that compute what HK serves."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend import ops
from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.values import dequantize
from hk_backend.reference.rotation import rotated


@dataclass(frozen=True)
class Serving:
    """How a layer is served. `activations`: of `pack_weight`. `rotation`: channels of the input
    that are rotated together before they are rounded; 0: none."""

    recipe: Recipe
    activations: str
    rotation: int = 0

    def layer(
        self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.nn.Module:
        """The layer of a stored weight."""
        if self.rotation:
            return RotatedLinear(self, self.recipe.dequantize(codes, scales), bias)
        packed = ops.pack_weight(codes, self.recipe.format, scales, activations=self.activations)
        return ServedLinear(packed, bias)

    def multiplied(self, x: torch.Tensor) -> torch.Tensor:
        """What an MX layer multiplies with its weight for the inputs `x` `[..., k]`, float32."""
        inputs = rotated(x, self.rotation, torch.float32) if self.rotation else x.float()
        if self.activations == "none":
            return inputs
        codes, scales = ops.quantize_mx(inputs.flatten(0, -2), self.recipe.format)
        return dequantize(codes, self.recipe.format, scales).view(inputs.shape)


class ServedLinear(torch.nn.Module):
    """`hk_backend.ops.linear`."""

    def __init__(self, weight: ops.PackedWeight, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.packed = weight
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.linear(x, self.packed, self.bias)


class RotatedLinear(torch.nn.Module):
    """The same by definition, with the weight's float32 values `[n, k]`, until the operator rotates
    activations itself."""

    def __init__(self, serving: Serving, values: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.serving = serving
        self.values = values
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.serving.multiplied(x), self.values, self.bias)
