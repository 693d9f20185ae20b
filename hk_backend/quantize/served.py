"""Quantised layers as modules that compute the same as HK's serving operators."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend import ops
from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.values import dequantize
from hk_backend.reference.rotation import rotated
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, rotated_activations


@dataclass(frozen=True)
class Serving:
    """The way in which a layer is served.

    `activations`: how its inputs are rounded, in the words of `pack_weight`. `rotation`: number of
    input channels that are rotated together before rounding; 0: none.
    """

    recipe: Recipe
    activations: str
    rotation: int = 0

    def layer(
        self, codes: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.nn.Module:
        """The layer that serves a weight of these codes and scales."""
        packed = ops.pack_weight(
            codes,
            self.recipe.format,
            scales,
            activations=rotated_activations(self.activations, self.rotation),
            rotation=self.rotation,
        )
        return ServedLinear(packed, bias)

    def multiplied(self, x: torch.Tensor) -> torch.Tensor:
        """The inputs `x` `[..., k]` rotated and rounded as the layer does it, float32."""
        format = FORMATS[self.recipe.format].of_activations(self.activations)
        if format is None:
            return rotated(x, self.rotation, torch.float32) if self.rotation else x.float()
        rows = x.flatten(0, -2)
        if format.is_mx:
            codes, scales = ops.quantize_mx(rows, format.name, rotation=self.rotation)
            return dequantize(codes, format.name, scales).view(x.shape)
        codes, scales = ops.quantize_fp8(rows, self.activations)
        if self.activations == "token_block":
            scales = scales.repeat_interleave(FP8_BLOCK, 1)[:, : x.shape[-1]]
        return codes.float().mul_(scales).view(x.shape)


class ServedLinear(torch.nn.Module):
    """A linear layer that calls `hk_backend.ops.linear`."""

    def __init__(self, weight: ops.PackedWeight, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.packed = weight
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.linear(x, self.packed, self.bias)
