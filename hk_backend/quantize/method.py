"""How a layer's codes are chosen: each value of `--method`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.ops.weight_codes import codes_under
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.recipe import Recipe
from hk_backend.reference.rotation import rotated
from hk_backend.terms.folds import NONE

SCALE_RULES = {
    "maximum": "the largest value of a channel or block becomes the largest code",
    "even": "a block's largest value, rounded to an element's digits, sets the exponent, as in AMD "
    "Quark and in the mxfp4 of compressed-tensors",
    "least error": "the one of three exponents with the smallest squared error in its block: that "
    "of AMD Quark's rule (even) and its two neighbours",
}
"""How the scales of weights are chosen; tools differ in it, and every reader takes any scale."""


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
        """The float32 values that the codes of a finite `weight` `[n, k]` of `layer` stand for:
        rotated as its inputs will be.

        Raises:
            QuantizeError: rotated, it exceeds float32, so that a scale would be NaN.
        """
        rotation = self.while_serving(layer)
        if not rotation:
            return weight.float()
        target = rotated(weight, rotation).float()
        if not target.isfinite().all():
            raise QuantizeError(
                f"{layer}.weight: rotated by {rotation} channels it exceeds float32"
            )
        return target

    def while_serving(self, layer: str) -> int:
        """The rotation of the inputs of `layer` that is left to do then."""
        return 0 if layer.endswith(self.folded) else self.rotation

    def scale_rule(self, recipe: Recipe) -> str:
        """The key in `SCALE_RULES` of how the scales are chosen. A calibrated layer that rounding
        to nearest suits better has the scales of `rtn`."""
        if recipe.granularity != "mx":
            return "maximum"
        return "even" if self.name == "rtn" else "least error"

    def quantize(self, target: torch.Tensor, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales as `Recipe.stored` describes them, each weight by itself."""
        if self.name == "rtn":
            return recipe.quantize(target)
        scales = recipe.best_scales(target)
        return codes_under(target, recipe.format, scales), scales
