"""The ranks that share a model's layers: one of them measures, and all take its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from vllm.distributed import get_tp_group, model_parallel_is_initialized

from hk_backend.engine.evidence.ranks import ALONE, Ranks

T = TypeVar("T")


@dataclass(frozen=True)
class TensorParallel:
    """vLLM's group of tensor-parallel ranks.

    Attributes:
        rank: number of this process in the group.
        group: vLLM's `GroupCoordinator`.
    """

    rank: int
    group: Any

    def broadcast(self, value: T) -> T:
        found: T = self.group.broadcast_object(value, src=0)
        return found


def tensor_parallel() -> Ranks:
    """The ranks with the shards of the layers that this process is loading."""
    if not model_parallel_is_initialized():
        return ALONE
    group = get_tp_group()
    return ALONE if group.world_size == 1 else TensorParallel(group.rank_in_group, group)
