"""Checks the options of `hk-backend bench attention`, and runs the sweep over shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import typer

from hk_backend.lab.bench.attention.layouts import LAYOUTS
from hk_backend.lab.bench.attention.measure import (
    DTYPES,
    AttentionCase,
    AttentionTiming,
    cases,
    measure,
)
from hk_backend.lab.options import parse_names, parse_numbers


@dataclass(frozen=True)
class AttentionSweep:
    """The cases to measure, each with every kind of keys and values."""

    cases: Sequence[AttentionCase]
    kinds: Sequence[str]
    rounds: int

    @classmethod
    def parse(
        cls,
        lengths: str = "512,1024,2048,4096",
        head_sizes: str = "64,128",
        heads: str = "9/3,32/8",
        dtypes: str = "bf16,fp32",
        layouts: str = "all",
        block_sizes: str = "16,128",
        rounds: int = 7,
        cached: int = 0,
    ) -> AttentionSweep:
        """The sweep that comma-separated options describe.

        Raises:
            typer.BadParameter: an option's value is not valid; the message says what would be.
        """
        if layouts in ("all", "none"):
            chosen = list(LAYOUTS) if layouts == "all" else []
        else:
            chosen = parse_names(layouts, list(LAYOUTS), "--layouts")
        sizes = parse_numbers(block_sizes, "--block-sizes", multiple_of=8)
        grid = cases(
            parse_numbers(lengths, "--lengths"),
            parse_numbers(head_sizes, "--head-sizes", multiple_of=8),
            _pairs(heads, "--heads"),
            parse_names(dtypes, list(DTYPES), "--dtypes"),
            cached,
        )
        kinds = ["packed", *(f"{layout}/{size}" for layout in chosen for size in sizes)]
        return cls(grid, kinds, rounds)

    def run(self, on_case: Callable[[str], object]) -> Iterator[AttentionTiming]:
        """Measure everything; yields one row for each case and kind, failed ones included.

        `on_case` is called with a description of the next case.
        """
        for number, case in enumerate(self.cases, 1):
            on_case(f"{number}/{len(self.cases)}  {case}, {len(self.kinds)} kinds of keys")
            yield from measure(case, self.kinds, self.rounds)


def _pairs(text: str, option: str) -> list[tuple[int, int]]:
    pairs = []
    for part in text.split(","):
        query, slash, kv = part.partition("/")
        valid = slash and query.strip().isdecimal() and kv.strip().isdecimal() and int(kv) > 0
        if not valid or int(query) % int(kv) or not int(query):
            raise typer.BadParameter(
                f"{option}: {part.strip()!r} is not QUERY/KV, one a multiple of the other: 32/8"
            )
        pairs.append((int(query), int(kv)))
    return pairs
