"""A contest: both ways to compute one kind of layer, ready to be timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]
"""Computes the layer once, on inputs that were made beforehand."""


@dataclass(frozen=True)
class Contest:
    """Both ways to compute one kind of layer.

    Attributes:
        rows: numbers of rows to measure, ascending, for example 1, 8, 64, 512 and the engine's
            limit of tokens in a batch. Rows of attention are the query tokens of one fresh prompt.
        ours: makes HK's call for a number of rows.
        theirs: makes the engine's call for a number of rows.
        planned: modelled microseconds of HK's call on a GPU, launch included; None: unknown.
    """

    rows: tuple[int, ...]
    ours: Callable[[int], Call]
    theirs: Callable[[int], Call]
    planned: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        """Checks `rows`. Raises `ValueError` if it is empty or not ascending."""
        if not self.rows or self.rows[0] < 1 or list(self.rows) != sorted(set(self.rows)):
            raise ValueError(f"rows = {self.rows}; valid: one or more numbers from 1, ascending")


PROMPTS = (32, 128, 512, 2048)
"""Query tokens of the fresh prompts to measure attention with, as far as a step takes them."""


def prompts_up_to(limit: int) -> tuple[int, ...]:
    """The `PROMPTS` that a step of `limit` tokens may hold whole; at least one."""
    return tuple(tokens for tokens in PROMPTS if tokens <= limit) or (limit,)


class NoContest(Exception):
    """The engine cannot compute the layer at all, so HK serves it unmeasured.

    The message says why.
    """


class Unserved(Exception):
    """HK cannot compute the layer at all, so the engine does. The message says why."""
