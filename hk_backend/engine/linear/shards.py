"""The shards of a merged layer (q, k and v, say): names in the checkpoint and parts of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from hk_backend.terms.weight_format import FP8_BLOCK


class CheckpointError(ValueError):
    """A tensor of the checkpoint cannot be served; the message names it."""


def name_of(layer: Any) -> str:
    """Name of a layer in its model, if the engine tells it, else of its class."""
    return getattr(layer, "prefix", "") or type(layer).__name__


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


@dataclass(frozen=True)
class Shards:
    """The shards of a layer; one if it is not merged.

    Args:
        modules: names of the shards in the checkpoint; the layer's own if those are not known.
        widths: output features of each shard on this rank.
    """

    modules: list[str]
    widths: list[int]

    @classmethod
    def of(cls, layer: Any, features: int = 0) -> Shards:
        """The shards of `layer`, which has so many output features on this rank."""
        widths = shard_widths(layer) or [features]
        quantised = getattr(layer, "quant_config", None)
        mapping = getattr(quantised, "packed_modules_mapping", None)
        modules = merged_names(name := name_of(layer), mapping)
        return cls(modules if len(modules) == len(widths) else [name], widths)

    def names(self, parameter: str) -> list[str]:
        """Names of a parameter in the checkpoint."""
        return [f"{module}.{parameter}" for module in self.modules]

    def rows(self, parameter: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the rows of a parameter `[N, ...]`, and their name in the checkpoint."""
        names = self.names(parameter)
        parts = tensor.split(self.widths) if len(names) == len(self.widths) else (tensor,)
        yield from zip(names, parts, strict=True)

    def split(
        self, weight: torch.Tensor, scales: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yields weight and scales of each shard; two shards may share a block."""
        step = 1 if len(scales) == len(weight) else FP8_BLOCK
        for width, end in zip(self.widths, accumulate(self.widths), strict=True):
            rows = slice((end - width) // step, -(-end // step))
            yield weight[end - width : end], scales[rows]
