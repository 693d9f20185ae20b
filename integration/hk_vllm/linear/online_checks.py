"""A weight that is quantised as soon as it is loaded: it must be there, all of it, and finite."""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

from hk_vllm.linear.shards import CheckpointError, shard_names, shard_widths

SHARDS = {"q": 0, "k": 1, "v": 2}
"""What vLLM calls the shards of attention; others it counts."""


def check_online(layer: Any, weight: torch.Tensor) -> None:
    """
    Raises:
        CheckpointError: a tensor that the checkpoint lacks, or that holds NaN or infinity.
    """
    names, widths = shard_names(layer, "weight"), shard_widths(layer) or [len(weight)]
    if len(names) != len(widths):
        names, widths = names[:1], [len(weight)]
    if not _loads_nothing():
        _check_arrived(layer, names)
    for name, part in zip(names, weight.split(widths), strict=True):
        broken = ~part.isfinite()
        if bool(broken.any()):
            place = broken.nonzero()[0].tolist()
            value = part[tuple(place)].item()
            raise CheckpointError(
                f"{name}: {value} at {place} is not valid: expected finite numbers"
            )


def _check_arrived(layer: Any, names: list[str]) -> None:
    """vLLM keeps what a layer was given until it has processed it."""
    shards: set[Any] = set()
    for parameter, call in get_layerwise_info(layer).loaded_weights:
        if parameter == "weight":
            shard = call.arguments.get("loaded_shard_id")
            shards |= set(shard) if isinstance(shard, tuple) else {SHARDS.get(shard, shard)}
    if None in shards:
        return  # all in one tensor
    for index, name in enumerate(names):
        if index not in shards:
            raise CheckpointError(f"{name}: not in the checkpoint")


def _loads_nothing() -> bool:
    config = get_current_vllm_config_or_none()
    return config is not None and config.load_config.load_format == "dummy"
