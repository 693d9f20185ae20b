"""The settings of a run, checked against what the formats and methods support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hk_backend.ops.head_format import KEPT
from hk_backend.ops.rotation import ROTATION
from hk_backend.quantize.errors import QuantizeError
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES, Recipe
from hk_backend.reference.rotation import ROTATIONS
from hk_backend.terms.folds import FOLDS


@dataclass(frozen=True)
class Settings:
    """Settings that the output depends on, besides the model.

    `activations`, `method` "" and `rotation` None: the format's default; `rotation` 0: none.
    `ignore`: shell-style patterns of layer names. `shard_bytes`: size of a file, and so about the
    memory that a run takes. `calibration`: the text that `gptq` calibrates on. `head`: the recipe
    of the LM head. `embedding`: the table that the embedding looks up its rows in. `fold`: which
    rotations are folded into other weights; "": `heads` where that is possible.
    """

    format: str
    activations: str = ""
    ignore: list[str] = field(default_factory=list)
    shard_bytes: int = 2 << 30
    method: str = ""
    rotation: int | None = None
    calibration: Path | None = None
    head: str = KEPT
    embedding: str = KEPT
    fold: str = ""

    def recipe(self) -> Recipe:
        """The recipe. Raises QuantizeError for an unknown format, or one without `activations`."""
        recipe = RECIPES.get(self.format)
        if recipe is None:
            raise QuantizeError(f"format {self.format!r}: choose one of {', '.join(RECIPES)}")
        if self.activations and self.activations not in recipe.activations:
            raise QuantizeError(
                f"activations {self.activations!r}: {self.format} knows "
                f"{' and '.join(recipe.activations)}"
            )
        if self.fold and self.fold not in FOLDS:
            raise QuantizeError(f"--fold {self.fold}: choose one of {listed(FOLDS)}")
        if self.shard_bytes < 1:
            raise QuantizeError(
                f"--shard-size {self.shard_bytes / 1e9:g}: expected a positive number"
            )
        return recipe.beside(self.activations)

    def chosen_method(self) -> Method:
        """The method. Raises QuantizeError if the format does not support it or its rotation."""
        recipe = self.recipe()
        # a rotation helps rounded activations; weights alone are rounded worse with one
        rotates = recipe.rotates and self.activations != "none"
        usual = "scales" if recipe.rotates and not rotates else recipe.methods[0]
        name = self.method or usual
        if name not in recipe.methods:
            raise QuantizeError(f"--method {name}: {self.format} knows {listed(recipe.methods)}")
        if name == "gptq" and self.calibration is None:
            raise QuantizeError(
                "--method gptq needs --text FILE: it calibrates on the text's first part, and the "
                "perplexity of the rest is reported"
            )
        may_rotate = recipe.can_rotate and name in ("rotated", "gptq")
        if self.rotation and not may_rotate:
            can = [each.name for each in RECIPES.values() if each.can_rotate]
            raise QuantizeError(
                f"--rotation {self.rotation}: --method {name} does not rotate {self.format}; "
                f"rotated and gptq rotate {listed(can)}"
            )
        if self.rotation and self.rotation not in ROTATIONS:
            raise QuantizeError(f"--rotation {self.rotation}: choose one of {listed(ROTATIONS)}")
        if self.rotation == 0 and name == "rotated":
            others = listed([each for each in recipe.methods if each != name])
            raise QuantizeError(f"--rotation 0: --method rotated rotates; choose among {others}")
        # gptq makes up for what a rotation costs the weights, also beside wider activations
        gains = RECIPES[self.format].rotates and self.activations != "none"
        by_default = name == "rotated" or (name == "gptq" and gains)
        usually = ROTATION if by_default else 0
        return Method(name, usually if self.rotation is None else self.rotation)


def listed(values: Sequence[object]) -> str:
    """`a, b and c`."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last
