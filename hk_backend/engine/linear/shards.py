"""The shards of a merged layer (q, k and v, say): names in the checkpoint and parts of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import torch

from hk_backend.terms.weight_format import FP8_BLOCK


class CheckpointError(ValueError):
    """A tensor of the checkpoint cannot be served; the message names it."""


def name_of(layer: Any) -> str:
    """Name of a layer in its model, if the engine tells it, else of its class."""
    return getattr(layer, "prefix", "") or type(layer).__name__


def shard_names(layer: Any, parameter: str) -> list[str]:
    """Name of a parameter in the checkpoint; for a merged layer, one name for each shard."""
    prefix = name_of(layer)
    parent, _, own = prefix.rpartition(".")
    mapping = getattr(getattr(layer, "quant_config", None), "packed_modules_mapping", None) or {}
    modules = mapping.get(own) or MERGED.get(own) or [own]
    if len(modules) != len(shard_widths(layer) or [0]):
        modules = [own]
    return [".".join(filter(None, (parent, module, parameter))) for module in modules]


def merged_names(layer: str, merged: Mapping[str, list[str]] | None) -> list[str]:
    """Names of a layer's shards in the checkpoint; the layer's own name if it is not merged.

    Args:
        layer: name of the layer in the model.
        merged: shards of merged layers, if the engine tells them.
    """
    parent, _, own = layer.rpartition(".")
    shards = (merged or {}).get(own) or MERGED.get(own) or [own]
    return [f"{parent}.{shard}" if parent else shard for shard in shards]


MERGED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
"""Shards of merged layers, for engines that do not tell them."""


def shard_widths(layer: Any) -> list[int] | None:
    """Output features of each shard on this rank."""
    widths = getattr(layer, "logical_widths", None) or getattr(
        layer, "output_partition_sizes", None
    )
    return None if widths is None else list(widths)


def shards_of(
    layer: Any, weight: torch.Tensor, scales: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields weight and scales of each shard of a merged layer; two shards may share a block."""
    widths = shard_widths(layer) or [len(weight)]
    step = 1 if len(scales) == len(weight) else FP8_BLOCK
    for width, end in zip(widths, accumulate(widths), strict=True):
        rows = slice((end - width) // step, -(-end // step))
        yield weight[end - width : end], scales[rows]
