"""The ranks of one model: one of them decides, and all take its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Ranks(Protocol):
    """The processes that hold the shards of one model."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    def broadcast(self, value: T) -> T:
        """Return rank 0's `value` on every rank. All ranks call it the same number of times."""


@dataclass(frozen=True)
class Alone:
    """The only process of a model."""

    rank: int = 0

    def broadcast(self, value: T) -> T:
        return value


ALONE = Alone()
