"""The tensors that a layer's weight is packed from, and the reference's product with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.ops import pack_weight
from hk_backend.reference import dequantize, dequantize_rows, linear
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK

REFERENCE_ROWS = 8 * FP8_BLOCK
"""Output features that the reference computes at once, to bound its memory."""


@dataclass(frozen=True)
class Original:
    """The arguments of `pack_weight` for one layer, and the layer's `name`."""

    name: str
    weight: torch.Tensor
    format: str
    scales: torch.Tensor | None
    activations: str
    input_scale: torch.Tensor | None
    rotation: int = 0

    def packed(self) -> PackedWeight:
        """The packed weight."""
        return pack_weight(
            self.weight,
            self.format,
            self.scales,
            activations=self.activations,
            input_scale=self.input_scale,
            rotation=self.rotation,
        )

    def rows(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and scales of output features `[first, last)`; `first` is a multiple of 128."""
        scales, weight = self.scales, self.weight
        if scales is not None and scales.numel() > 1:
            step = 1 if len(scales) == len(weight) else FP8_BLOCK
            scales = scales[first // step : -(-last // step)]
        return weight[first:last], scales

    def multiply(
        self,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        x_scales: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The reference's output, a few output features at a time, as it computes in float64."""
        activations, input_scale = self.activations, self.input_scale
        rotation = self.rotation
        if x_scales is not None:
            x, activations, input_scale = self._values(x, x_scales), "none", None
            rotation = 0  # the codes are of rotated values already
        parts = []
        for first in range(0, len(self.weight), REFERENCE_ROWS):
            last = min(first + REFERENCE_ROWS, len(self.weight))
            weight, scales = self.rows(first, last)
            part = linear(
                x,
                weight,
                self.format,
                scales,
                activations=activations,
                input_scale=input_scale,
                bias=None if bias is None else bias[first:last],
                rotation=rotation,
            )
            parts.append(part.to(dtype))
        return torch.cat(parts, dim=-1)

    def _values(self, x: torch.Tensor, x_scales: torch.Tensor) -> torch.Tensor:
        """Values of activations that arrive as codes."""
        format = FORMATS[self.format].of_activations(self.activations)
        if format is not None and format.is_mx:
            return dequantize(x, format.name, x_scales)
        return dequantize_rows(x, x_scales)
