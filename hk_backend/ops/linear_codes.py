"""Activations of `linear` that arrive as codes with scales: their shapes and checks."""

from __future__ import annotations

import torch

from hk_backend.terms.checks import bad, check_no_grad
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, MX_BLOCK


def codes_of_a_row(weight: PackedWeight) -> int:
    """Elements of x that hold a row of codes beside `weight`."""
    return weight.k if weight.x_format is None else weight.x_format.row_codes(weight.k)


def scales_of_a_row(weight: PackedWeight) -> int:
    """Number of scales of a row of codes."""
    if weight.x_format is not None and weight.x_format.is_mx:
        return weight.k // MX_BLOCK
    return -(-weight.k // FP8_BLOCK) if weight.activations == "token_block" else 1


def check_codes(x: torch.Tensor, x_scales: torch.Tensor, weight: PackedWeight) -> None:
    """Checks that x is a result of `quantize_fp8` or `quantize_mx` for the activations of `weight`.

    Raises:
        ValueError: x, its scales, or a weight whose activations are not rounded.
    """
    format = weight.x_format
    if format is None or not FORMATS[weight.format].is_quantised:
        found = f"scales with {weight.format} weights and activations {weight.activations!r}"
        bad("x_scales", found, "None, or a weight whose activations are quantised")
    if x.dtype != format.dtype:
        bad("x", x.dtype, f"codes of {format.name}, {format.dtype}")
    dtype = torch.uint8 if format.is_mx else torch.float32
    shape = [*x.shape[:-1], scales_of_a_row(weight)]
    one_for_all = weight.activations in ("token", "tensor") and x_scales.numel() == 1
    fits = list(x_scales.shape) == shape or one_for_all
    if x_scales.dtype != dtype or x_scales.device != x.device or not fits:
        found = f"{x_scales.dtype} {list(x_scales.shape)} on {x_scales.device}"
        expected = f"{shape} or [1]" if weight.activations in ("token", "tensor") else f"{shape}"
        bad("x_scales", found, f"{dtype} {expected} on {x.device}")
    check_no_grad(x_scales=x_scales)
