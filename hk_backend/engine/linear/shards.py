"""The shards of a merged layer (q, k and v, say): their names in the checkpoint, and which parts of
the layer's tensors they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import torch

from hk_backend.terms.weight_format import FP8_BLOCK


class CheckpointError(ValueError):
    """A tensor of the checkpoint that cannot be served; the message names it."""


def name_of(layer: Any) -> str:
    """A layer's name in its model, as far as the engine tells it."""
    return getattr(layer, "prefix", "") or type(layer).__name__


def shard_names(layer: Any, parameter: str) -> list[str]:
    """A parameter's name in the checkpoint; of a merged layer, one name for each shard."""
    prefix = name_of(layer)
    parent, _, own = prefix.rpartition(".")
    mapping = getattr(getattr(layer, "quant_config", None), "packed_modules_mapping", None) or {}
    modules = mapping.get(own) or MERGED.get(own) or [own]
    if len(modules) != len(shard_widths(layer) or [0]):
        modules = [own]
    return [".".join(filter(None, (parent, module, parameter))) for module in modules]


def merged_names(layer: str, merged: Mapping[str, list[str]] | None) -> list[str]:
    """What the checkpoint calls the shards of a layer by its name in the model; of one that is not
    merged, that name.

    Args:
        merged: the shards of merged layers, as far as an engine tells them.
    """
    parent, _, own = layer.rpartition(".")
    shards = (merged or {}).get(own) or MERGED.get(own) or [own]
    return [f"{parent}.{shard}" if parent else shard for shard in shards]


MERGED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
"""The shards of merged layers where an engine does not tell a layer's."""


def shard_widths(layer: Any) -> list[int] | None:
    """Output features of each shard on this rank."""
    widths = getattr(layer, "logical_widths", None) or getattr(
        layer, "output_partition_sizes", None
    )
    return None if widths is None else list(widths)


def shards_of(
    layer: Any, weight: torch.Tensor, scales: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Weight and scales of each shard of a merged layer; blocks that two shards share, of both."""
    widths = shard_widths(layer) or [len(weight)]
    step = 1 if len(scales) == len(weight) else FP8_BLOCK
    for width, end in zip(widths, accumulate(widths), strict=True):
        rows = slice((end - width) // step, -(-end // step))
        yield weight[end - width : end], scales[rows]
