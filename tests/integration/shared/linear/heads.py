"""Tables of LM heads, and checks of what a head in a format computes."""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.ops import quantize_fp8
from hk_backend.ops.head_format import KEPT, head_rounding
from hk_backend.quantize.method import Method
from hk_backend.quantize.recipe import RECIPES
from hk_backend.reference import dequantize
from hk_backend.reference.rotation import rotated
from hk_backend.terms.weight_format import FORMATS
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.layers import values
from tests.ops.linear_cases import Layer
from tests.ops.linear_oracle import check_result

VOCABULARY, K = 300, 96
"""Sizes of a table. Both engines pad the vocabulary to a multiple of 64."""


def table(seed: int = 0) -> torch.Tensor:
    """Rows of different sizes: one scale for all would be seen."""
    rows = values((VOCABULARY, K), torch.float32, seed)
    return (rows * torch.linspace(0.5, 2.0, VOCABULARY)[:, None]).bfloat16()


def x_of() -> torch.Tensor:
    found: torch.Tensor = values((5, K), seed=9)
    return found


def layer_of(weight: torch.Tensor, format: str, steps: int = 0) -> Layer:
    """The product that a head of `weight` in `format` is to compute.

    `steps`: the number of steps by which its first scale is wrong.
    """
    if format == KEPT:
        return Layer(x_of(), weight, "bf16", None)
    of, (activations, rotation) = FORMATS[format], head_rounding(format, weight.shape[1])
    if of.is_fp8:
        scales = weight.abs().amax(1, keepdim=True).float() / of.quantised_max
        codes, _ = quantize_fp8(weight, "channel", scales)
        scales[0] *= 2.0**steps
    else:
        target = rotated(weight, rotation).float() if rotation else weight
        recipe = Method("scales" if rotation else "rtn")
        codes, scales = recipe.quantize(target.float(), RECIPES[format])
        scales[0] += steps
    return Layer(x_of(), codes, format, scales, activations, rotation=rotation)


def assert_computes(
    engine: LinearEngine, model: Any, weight: torch.Tensor, format: str, steps: int = 0
) -> None:
    """Hold that the model's logits are right, apart from those of padding."""
    logits = engine.logits(model, x_of())[:, : len(weight)].contiguous()
    check_result(layer_of(weight, format, steps), logits)


def assert_looks_up(model: Any, weight: torch.Tensor, format: str) -> None:
    """Hold that the embedding looks up the head's rows, without a table of its own.

    Rows may differ by float32's roundings of a rotation and by bfloat16's.
    """
    ids, embedding = torch.tensor([[len(weight) - 1, 0], [63, 64]]), model.embed_tokens
    found = embedding.quant_method.embedding(embedding, ids)
    assert found.dtype == torch.bfloat16
    of = layer_of(weight, format)
    exact = dequantize(of.weight, format, of.scales)
    exact = rotated(exact, of.rotation) if of.rotation else exact
    assert found.shape == (2, 2, K)
    assert torch.allclose(found.double(), exact[ids], rtol=2**-8, atol=2**-18)
    assert embedding.weight.numel() == model.lm_head.weight.numel() == 0
    assert embedding.weight.dtype == torch.bfloat16
