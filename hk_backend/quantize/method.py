"""Methods of choosing a layer's codes: the values of `--method`."""

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
"""Rules by which weights get their scales; tools use different rules, readers accept any scale."""


@dataclass(frozen=True)
class Method:
    """A method of choosing codes, with its rotation.

    `rotation`: number of channels along K that are rotated together; 0: none. Weights are rotated
    here, activations while serving. `fold`: which rotations are folded into other weights, one of
    `hk_backend.terms.folds.FOLDS`. `folded`: ends of the names of layers whose inputs are rotated
    by other weights (`hk_backend.quantize.folding`).
    """

    name: str
    rotation: int = 0
    fold: str = NONE
    folded: tuple[str, ...] = ()

    def target(self, weight: torch.Tensor, layer: str = "") -> torch.Tensor:
        """The float32 values that the codes of `layer` should represent.

        They are its finite `weight` `[n, k]`, rotated as its inputs will be.

        Raises:
            QuantizeError: the rotated weight exceeds float32, so that a scale would be NaN.
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
        """The rotation of `layer`'s inputs while serving; 0: none, or other weights do it."""
        return 0 if layer.endswith(self.folded) else self.rotation

    def scale_rule(self, recipe: Recipe) -> str:
        """The key in `SCALE_RULES` of the rule for scales.

        A calibrated layer for which rounding to nearest is better has the scales of `rtn`.
        """
        if recipe.granularity != "mx":
            return "maximum"
        return "even" if self.name == "rtn" else "least error"

    def quantize(self, target: torch.Tensor, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales of one weight, in the shapes and dtypes of `Recipe.stored`."""
        if self.name == "rtn":
            return recipe.quantize(target)
        scales = recipe.best_scales(target)
        return codes_under(target, recipe.format, scales), scales
