"""Checks that a weight that vLLM quantises while loading has arrived."""

from __future__ import annotations

from typing import Any

from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

from hk_backend.engine.linear.online import check_arrived, shard_indices


def check_weight_arrived(layer: Any) -> None:
    """Checks that all shards of a layer's weight have arrived, by vLLM's record of its tensors.

    Raises:
        CheckpointError: a tensor is missing from the checkpoint.
    """
    if _loads_nothing():
        return
    arrived: set[int] = set()
    for parameter, call in get_layerwise_info(layer).loaded_weights:
        if parameter == "weight":
            shards = shard_indices(call.arguments.get("loaded_shard_id"))
            if shards is None:
                return  # all in one tensor
            arrived |= shards
    check_arrived(layer, arrived)


def _loads_nothing() -> bool:
    config = get_current_vllm_config_or_none()
    return config is not None and config.load_config.load_format == "dummy"
