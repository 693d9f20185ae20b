"""Launches that could serve a layer: the planner's choice, then its rivals by their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from hk_backend.lab.tables import plain_table

Facts = dict[str, str | int]


@dataclass(frozen=True)
class Rival:
    """A launch that could serve the layer.

    Args:
        facts: what tells it from the others, by heading.
        planned: the planner's time in microseconds.
        clocked: the timing model's time in microseconds; None: not asked for.
    """

    facts: Facts
    planned: float
    clocked: float | None

    def as_json(self) -> dict[str, Any]:
        return {**self.facts, "planned": self.planned, "clocked": self.clocked}


def table(found: Sequence[Rival], **short: str) -> Table:
    """A table with a line for each rival. `short`: shorter headings of facts."""
    facts = [(short.get(name, name), value) for name, value in found[0].facts.items()]
    headings = [name if isinstance(value, str) else f">{name}" for name, value in facts]
    made = plain_table(*headings, ">planned us", ">clock us", gap=1)
    for each in found:
        clocked = "" if each.clocked is None else f"{each.clocked:.4g}"
        made.add_row(*map(str, each.facts.values()), f"{each.planned:.4g}", clocked)
    return made


def rivals(
    launches: Sequence[Any],
    facts: Callable[[Any], Facts],
    clock: Callable[[Any], float],
    clocked: int,
    say: Callable[[str], object],
) -> list[Rival]:
    """Candidates of a planner as rivals; `clock` times the first `clocked` of them."""
    found = []
    for number, each in enumerate(launches, 1):
        own, time = facts(each), None
        if number <= clocked:
            say(f"{number}/{min(clocked, len(launches))}  {own}")
            time = clock(each)
        found.append(Rival(own, each.microseconds, time))
    return found
