"""The ranks of one model: rank 0 decides, and all take its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes that hold the shards of one model.

    Args:
        group: the engine's `GroupCoordinator` of them; None: this process is alone.
    """

    group: Any = None

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        return 0 if self.group is None else int(self.group.rank_in_group)

    def broadcast(self, value: T) -> T:
        """Returns rank 0's `value` on every rank. All ranks call this the same number of times."""
        held, group = [value], self.group
        if group is not None:
            torch.distributed.broadcast_object_list(held, src=group.ranks[0], group=group.cpu_group)
        return held[0]


ALONE = Ranks()


def ranks_of(group: Any) -> Ranks:
    """The ranks of an engine's `group`, which may be None or have no other rank."""
    return ALONE if group is None or group.world_size == 1 else Ranks(group)
