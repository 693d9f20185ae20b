"""How a layer's codes are chosen: each value of `--method`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hk_backend.quantize.folding import O_PROJ, V_PROJ, outputs_rotated
from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.values import encode
from hk_backend.reference.rotation import rotated


@dataclass(frozen=True)
class Method:
    """`rotation`: channels along K that are rotated together, those of the weight here and those of
    the activations while serving; 0: none. `folded`: v_proj rotates o_proj's inputs
    (`hk_backend.quantize.folding`)."""

    name: str
    rotation: int = 0
    folded: bool = False

    @property
    def calibrates(self) -> bool:
        """Whether the codes depend on a layer's inputs (`hk_backend.quantize.calibrate`)."""
        return self.name == "gptq"

    def target(self, weight: torch.Tensor, layer: str = "") -> torch.Tensor:
        """What the codes of `weight` `[n, k]`, of the `layer` of that name, stand for: float32,
        rotated if the layer is."""
        values = rotated(weight, self.rotation).float() if self.rotation else weight.float()
        return self.output(values, layer)

    def output(self, tensor: torch.Tensor, layer: str) -> torch.Tensor:
        """The weight or bias of `layer` with outputs as those who read them expect them."""
        if self.folded and layer.endswith(V_PROJ):
            return outputs_rotated(tensor, self.rotation).to(tensor.dtype)
        return tensor

    def while_serving(self, layer: str) -> int:
        """The rotation of the inputs of `layer` that is left to do then."""
        return 0 if self.folded and layer.endswith(O_PROJ) else self.rotation

    def quantize(self, target: torch.Tensor, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales as `Recipe.stored` describes them, each weight by itself."""
        if self.name == "rtn":
            return recipe.quantize(target)
        scales = recipe.best_scales(target)
        return encode(target, recipe.format, scales), scales
