"""A rotation that the layer before applies, so that nobody does while serving: o_proj's.

Attention's output is a weighted sum of v_proj's outputs, head by head. If v_proj's rows are rotated
within each head, attention hands o_proj an input that is rotated already. The other projections
read a norm or a product of two layers, through which no rotation goes.
"""

from __future__ import annotations

import torch

from hk_backend.quantize.recipe import Recipe
from hk_backend.quantize.source import PROJECTIONS, Source
from hk_backend.reference.rotation import rotated

V_PROJ, O_PROJ = (name for name in PROJECTIONS if name.endswith(("v_proj", "o_proj")))


def folds(source: Source, recipe: Recipe, rotation: int, layers: list[str]) -> bool:
    """Whether o_proj's rotation can be folded into v_proj: the heads must be whole blocks, both
    must be among the `layers` that are quantised or neither, in each of the model's layers, and
    the checkpoint's convention must tell layers apart."""
    if not rotation or recipe.quant_method != "compressed-tensors":
        return False
    config = source.config
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writers, readers = (
        {layer.removesuffix(name) for layer in layers if layer.endswith(name)}
        for name in (V_PROJ, O_PROJ)
    )
    return head % rotation == 0 and writers == readers


def outputs_rotated(tensor: torch.Tensor, rotation: int) -> torch.Tensor:
    """v_proj's weight `[n, k]` or bias `[n]`, whose outputs are rotated then; float32."""
    return rotated(tensor.movedim(0, -1), rotation).movedim(-1, 0).float().contiguous()
