"""Tensors that are missing from a checkpoint, which engines silently leave as allocated.

HK fills a quantised layer's tensors with values that no checkpoint contains, and looks for them
when it packs. `--load-format dummy`, which loads nothing, gets values that can be packed.
"""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.engine.linear.shards import CheckpointError, shard_names, shard_widths, shards_of

UNSET = torch.finfo(torch.float32).min
"""Mark for FP8 and input scales; engines fill most of them with it too."""
UNSET_MX = 0xFF
"""Mark for mx scales; it means NaN."""
UNSET_CODES = 0xFF
"""Mark for each byte of a weight. A weight may hold such codes (NaN in FP8), but no whole shard."""
DUMMY_SCALE, DUMMY_MX_SCALE = 1.0, 0x7F
"""A scale of 1, as a number and as an e8m0 code."""
DUMMY_CODES = 0x11
"""Code for weights in bytes, which the dummy loader skips; any finite code would do."""


def mark_unset(layer: Any) -> None:
    """Fills the new tensors of `layer` with marks, which a checkpoint's values overwrite."""
    for name in ("weight", "weight_packed"):
        weight = layer._parameters.get(name)
        if weight is not None and not weight.is_meta:
            weight.data.view(torch.uint8).fill_(UNSET_CODES)
            if weight.dtype == torch.uint8:
                weight.dummy_weight_value = DUMMY_CODES
    for name in ("weight_scale", "weight_scale_inv", "input_scale"):
        scale = layer._parameters.get(name)
        if scale is not None:
            is_mx = scale.dtype == torch.uint8
            scale.data.fill_(UNSET_MX if is_mx else UNSET)
            scale.dummy_weight_value = DUMMY_MX_SCALE if is_mx else DUMMY_SCALE


def check_weight(layer: Any, weight: torch.Tensor, parameter: str) -> None:
    """Refuses a quantised weight `[N, ...]` with a shard that is still as it was allocated.

    Raises:
        CheckpointError: the weight of a shard was not in the checkpoint.
    """
    if weight.element_size() > 1:
        return  # not quantised: an engine's own tensors, which HK did not fill
    names, widths = shard_names(layer, parameter), shard_widths(layer) or [len(weight)]
    if len(names) != len(widths):
        names, widths = names[:1], [len(weight)]
    for name, part in zip(names, weight.view(torch.uint8).split(widths), strict=True):
        # checks the first row alone first, as most have another code there
        if len(part) and all(bool((p == UNSET_CODES).all()) for p in (part[0], part)):
            raise CheckpointError(f"{name}: not in the checkpoint")


def check_scales(layer: Any, weight: torch.Tensor, scales: torch.Tensor, parameter: str) -> None:
    """Refuses scales that were never loaded.

    Raises:
        CheckpointError: none of a shard's scales was in the checkpoint.
    """
    names = shard_names(layer, parameter)
    parts = (
        [scales]
        if scales.dim() < 1 or len(names) == 1
        else [part for _, part in shards_of(layer, weight, scales)]
    )
    unset = UNSET_MX if scales.dtype == torch.uint8 else UNSET
    for name, part in zip(names, parts, strict=True):
        if part.numel() and bool((part == unset).all()):
            raise CheckpointError(f"{name}: not in the checkpoint")
