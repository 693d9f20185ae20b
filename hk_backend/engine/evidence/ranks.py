"""The ranks of one model: rank 0 decides, and all take its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Ranks(Protocol):
    """The processes that hold the shards of one model."""

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""

    def broadcast(self, value: T) -> T:
        """Returns rank 0's `value` on every rank. All ranks call this the same number of times."""


@dataclass(frozen=True)
class Alone:
    """The only process of a model."""

    rank: int = 0

    def broadcast(self, value: T) -> T:
        return value


ALONE = Alone()
