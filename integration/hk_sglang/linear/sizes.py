"""Refuses tensors of a checkpoint that are too short: SGLang's loader would pad them with zeros.

SGLang does so for a few models whose layers it pads. A quantised weight must not be padded, as the
zeros would be read as codes and scales.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.linear import RowParallelLinear
from sglang.srt.layers.parameter import RowvLLMParameter

from hk_backend.engine.linear.online import shard_index


def whole_tensors(layer: Any, load: Any, rows_of_one: int = 1) -> Any:
    """Wraps the loader `load` of a parameter of `layer` so that it takes only full-size tensors.

    Args:
        rows_of_one: output features for each row of the tensor.
    """

    def loader(parameter: Any, tensor: torch.Tensor, *shard: Any, **named: Any) -> None:
        given = next(iter((*shard, *named.values())), None)
        sizes = _shard_sizes(layer)
        if isinstance(given, (int, str)) and tensor.dim() and sizes:
            _check_size("rows", len(tensor), -(-sizes[shard_index(given)] // rows_of_one))
        if isinstance(layer, RowParallelLinear) and isinstance(parameter, RowvLLMParameter):
            columns = getattr(parameter, "hk_shape", parameter.shape)[1]
            if not _is_presharded(layer):
                columns *= layer.input_size // layer.input_size_per_partition
            _check_size("columns", tensor.shape[-1], columns)
        load(parameter, tensor, *shard, **named)

    return loader


def _check_size(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"its shape has {found} {what}: expected {expected}")


def _is_presharded(layer: Any) -> bool:
    return bool(getattr(layer, "use_presharded_weights", False))


def _shard_sizes(layer: Any) -> list[int]:
    """Output features of each shard in the checkpoint; empty if not known."""
    if _is_presharded(layer):
        return []
    if hasattr(layer, "total_num_kv_heads"):
        heads, head = layer.total_num_kv_heads, layer.head_size
        return [layer.total_num_heads * head, heads * head, heads * layer.v_head_size]
    return list(getattr(layer, "output_sizes", ()))
