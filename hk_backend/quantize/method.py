"""How a layer's codes are chosen: each value of `--method`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.ops.weight_codes import codes_under
from hk_backend.quantize.recipe import Recipe
from hk_backend.reference.rotation import rotated
from hk_backend.terms.folds import NONE


@dataclass(frozen=True)
class Method:
    """`rotation`: channels along K that are rotated together, those of the weight here and those of
    the activations while serving; 0: none. `fold`: which of them other weights do, one of
    `hk_backend.terms.folds.FOLDS`; `folded`: how the names of layers end whose inputs come rotated
    (`hk_backend.quantize.folding`)."""

    name: str
    rotation: int = 0
    fold: str = NONE
    folded: tuple[str, ...] = ()

    @property
    def calibrates(self) -> bool:
        """Whether the codes depend on a layer's inputs (`hk_backend.quantize.calibrate`)."""
        return self.name == "gptq"

    def target(self, weight: torch.Tensor, layer: str = "") -> torch.Tensor:
        """What the codes of `weight` `[n, k]`, of the `layer` of that name, stand for: float32,
        rotated as its inputs will be."""
        rotation = self.while_serving(layer)
        return rotated(weight, rotation).float() if rotation else weight.float()

    def while_serving(self, layer: str) -> int:
        """The rotation of the inputs of `layer` that is left to do then."""
        return 0 if layer.endswith(self.folded) else self.rotation

    def quantize(self, target: torch.Tensor, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales as `Recipe.stored` describes them, each weight by itself."""
        if self.name == "rtn":
            return recipe.quantize(target)
        scales = recipe.best_scales(target)
        return codes_under(target, recipe.format, scales), scales
