"""How a layer's codes are chosen: each value of `--method`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.values import encode
from hk_backend.reference.rotation import rotated


@dataclass(frozen=True)
class Method:
    """`rotation`: channels along K that are rotated together, those of the weight here and those of
    the activations while serving; 0: none."""

    name: str
    rotation: int = 0

    @property
    def calibrates(self) -> bool:
        """Whether the codes depend on a layer's inputs (`hk_backend.quantize.calibrate`)."""
        return self.name == "gptq"

    def target(self, weight: torch.Tensor) -> torch.Tensor:
        """What the codes of `weight` `[n, k]` stand for: float32, rotated if the layer is."""
        return rotated(weight, self.rotation).float() if self.rotation else weight.float()

    def quantize(self, target: torch.Tensor, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales as `Recipe.stored` describes them, each weight by itself."""
        if self.name == "rtn":
            return recipe.quantize(target)
        scales = recipe.best_scales(target)
        return encode(target, recipe.format, scales), scales
