"""The tensors of a quantised layer as a checkpoint holds them, before an engine changes them.

Engines silently leave tensors that are missing from a checkpoint as allocated. HK fills a layer's
tensors with values that no checkpoint contains, and looks for them when it packs. `--load-format
dummy` loads nothing, and gets values that can be packed.

Engines requantise merged shards that each have a scale (q, k and v, say) to the largest one. HK
keeps every shard's own scale, as one scale per output channel, which is exact.

Engines may also merge shards that end within a 128x128 block. Their scales then do not match the
blocks of the merged weight, and HK leaves such a layer to the engine.
"""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.engine.linear.model_files import was_loaded
from hk_backend.engine.linear.shards import CheckpointError, Shards
from hk_backend.terms.verdict import SERVED, Verdict, refused
from hk_backend.terms.weight_format import FP8_BLOCK

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


def check_weight(shards: Shards, weight: torch.Tensor, parameter: str) -> None:
    """Refuses a quantised weight `[N, ...]` with a shard that is still as it was allocated.

    Raises:
        CheckpointError: the weight of a shard was not in the checkpoint.
    """
    if weight.element_size() > 1:
        return  # not quantised: an engine's own tensors, which HK did not fill
    for name, part in shards.rows(parameter, weight.view(torch.uint8)):
        # checks the first row alone first, as most have another code there
        if len(part) and all(bool((p == UNSET_CODES).all()) for p in (part[0], part)):
            raise _missing(name)


def checked_scales(
    shards: Shards, weight: torch.Tensor, scales: torch.Tensor, parameter: str
) -> torch.Tensor:
    """The scales of `weight`, with a scale for each output channel if a shard had one for all.

    Raises:
        CheckpointError: none of a shard's scales was in the checkpoint.
    """
    names, widths = shards.names(parameter), shards.widths
    if scales.dim() <= 1 and scales.numel() == len(widths):
        loaded = _loaded(shards, scales.float().flatten(), parameter)
        return loaded.repeat_interleave(torch.tensor(widths, device=scales.device))
    whole = scales.dim() < 1 or len(names) == 1
    parts = [scales] if whole else [part for _, part in shards.split(weight, scales)]
    unset = UNSET_MX if scales.dtype == torch.uint8 else UNSET
    for name, part in zip(names, parts, strict=True):
        if part.numel() and bool((part == unset).all()):
            raise _missing(name)
    return scales


def one_input_scale(shards: Shards, scales: torch.Tensor | None) -> torch.Tensor:
    """The static scale of a layer's activations: the largest of its `input_scale`.

    Raises:
        CheckpointError: a scale is missing from the checkpoint.
    """
    if scales is None:
        raise _missing(shards.names("input_scale")[0])
    values = _loaded(shards, scales.data.float().flatten(), "input_scale")
    # NaN and infinity must not get lost in the maximum: pack_weight refuses them by name
    broken = ~(values.isfinite() & (values > 0))
    return values[broken][:1] if bool(broken.any()) else values.max().reshape(1)


def verdict_on_blocks(widths: list[int], ranks: int) -> Verdict:
    """Whether the 128x128 blocks of a merged layer match its scales.

    Args:
        widths: output features of each shard on this rank.
        ranks: number of ranks that share the layer.
    """
    # a shard that continues on another rank has to end on a block, too
    ends = widths if ranks > 1 else widths[:-1]
    if all(width % FP8_BLOCK == 0 for width in ends):
        return SERVED
    shards = " and ".join(map(str, widths))
    return refused(
        f"merged shards of {shards} output features do not end on blocks of {FP8_BLOCK}: quantise "
        "the model with a scale per output channel instead"
    )


def _loaded(shards: Shards, values: torch.Tensor, parameter: str) -> torch.Tensor:
    """Scales of shards, if the checkpoint has all of them.

    A checkpoint may hold a merged layer with one scale, which engines load as the first shard's.
    """
    missing = values == UNSET
    if not bool(missing.any()):
        return values
    names = shards.names(parameter)
    if not bool(missing[0]) and bool(missing[1:].all()) and not was_loaded(names[0]):
        return values[:1].expand_as(values)
    index = int(missing.nonzero()[0])
    raise _missing(names[index] if len(names) == len(values) else names[0])


def _missing(name: str) -> CheckpointError:
    return CheckpointError(f"{name}: not in the checkpoint")
