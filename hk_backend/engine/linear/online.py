"""Quantises a weight as soon as it is loaded; the weight must be complete and finite."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from hk_backend.engine.linear.kept import or_kept
from hk_backend.engine.linear.options import Options
from hk_backend.engine.linear.original import Original
from hk_backend.engine.linear.route import attach
from hk_backend.engine.linear.shards import CheckpointError, Shards, name_of
from hk_backend.ops import WeightError, quantize_fp8, quantize_mx
from hk_backend.ops.fp8_scales import fp8_scales
from hk_backend.ops.mx_scales import AT_ONCE, best_scales
from hk_backend.ops.weight_codes import codes_under
from hk_backend.reference.rotation import rotated
from hk_backend.terms.weight_format import FORMATS

SHARDS = {"q": 0, "k": 1, "v": 2}
"""Numbers of the shards of attention, which engines name; other shards have numbers."""


def pack_online(layer: Any, weight: torch.Tensor, options: Options) -> None:
    """Quantises `weight` `[N, K]`, bf16, fp16 or fp32, and attaches it to `layer`.

    The weight is rotated first if `options` say so.

    Raises:
        CheckpointError: a number is not finite, or its scale is not. In a reload the layer keeps
            its packed weight instead (`hk_backend.engine.linear.kept`).
    """
    with or_kept(layer):
        check_finite(layer, weight)
        activations, rotation = options.rounding(weight.shape[1])
        codes, scales = quantised(weight, options.format, rotation)
        name = name_of(layer)
        original = Original(name, codes, options.format, scales, activations, None, rotation)
        try:
            packed = original.packed()
        except WeightError as error:
            raise CheckpointError(f"{name}: {error}") from error
        attach(layer, packed, original)


def quantised(
    weight: torch.Tensor, format: str, rotation: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of `weight` in a quantised format, FP8 with a scale per output channel."""
    known = FORMATS[format]
    if known.is_fp8:
        scales = fp8_scales(weight, "channel", known.quantised_max)
        codes, _ = quantize_fp8(weight, "channel", scales, dtype=known.dtype)
        return codes, scales
    if rotation:
        return rotated_codes(weight, format, rotation)
    return quantize_mx(weight, format, scale_rounding="even")


def check_finite(layer: Any, weight: torch.Tensor) -> None:
    """Checks that all numbers of a weight are finite.

    Raises:
        CheckpointError: a number in `weight` is not finite.
    """
    for name, part in Shards.of(layer, len(weight)).rows("weight", weight):
        broken = ~part.isfinite()
        if bool(broken.any()):
            place = broken.nonzero()[0].tolist()
            value = part[tuple(place)].item()
            raise CheckpointError(
                f"{name}: {value} at {place} is not valid: expected finite numbers"
            )


def rotated_codes(
    weight: torch.Tensor, format: str, rotation: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes `[N, ...]` and scales `[N, K / 32]` of `weight` `[N, K]`, rotated, in an mx format.

    They equal the results of `hk-backend quantize --method rotated`. A few rows are computed at a
    time, which bounds the memory.
    """
    codes, scales = [], []
    for rows in weight.split(max(1, AT_ONCE // weight.shape[1])):
        target = rotated(rows, rotation).float()
        scales.append(best_scales(target, format))
        codes.append(codes_under(target, format, scales[-1]))
    return torch.cat(codes), torch.cat(scales)


def shard_indices(shard: Any) -> set[int] | None:
    """Numbers of the shards that an engine's shard id means; None: the whole layer."""
    if shard is None:
        return None
    return {shard_index(each) for each in (shard if isinstance(shard, tuple) else (shard,))}


def shard_index(shard: str | int) -> int:
    """Number of a merged layer's shard."""
    return SHARDS[shard] if isinstance(shard, str) else shard


def check_arrived(layer: Any, shards: Collection[int]) -> None:
    """Checks that all shards of a layer's weight were loaded.

    Raises:
        CheckpointError: a shard was not loaded.
    """
    for index, name in enumerate(Shards.of(layer).names("weight")):
        if index not in shards:
            raise CheckpointError(f"{name}: not in the checkpoint")
