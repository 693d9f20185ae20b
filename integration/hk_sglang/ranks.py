"""The ranks of a model in SGLang: its tensor-parallel group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from sglang.srt.runtime_context import get_parallel

from hk_backend.engine.evidence import ALONE, Ranks

T = TypeVar("T")


@dataclass(frozen=True)
class TensorParallel:
    """SGLang's group of tensor-parallel ranks, a `GroupCoordinator`."""

    group: Any

    @property
    def rank(self) -> int:
        return int(self.group.rank_in_group)

    def broadcast(self, value: T) -> T:
        held = [value]
        torch.distributed.broadcast_object_list(
            held, src=self.group.ranks[0], group=self.group.cpu_group
        )
        return held[0]


def tensor_parallel() -> Ranks:
    """The ranks that load a model with this process; this one alone if there is no group yet."""
    try:
        group = get_parallel().tp_group
    except (AttributeError, RuntimeError, ValueError):  # no group has been made
        return ALONE
    return ALONE if group is None or group.world_size == 1 else TensorParallel(group)
