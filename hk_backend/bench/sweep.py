"""A sweep over shapes: the options of `hk-backend bench attention` checked, and the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import typer

from hk_backend import machine
from hk_backend.bench.attention import DTYPES, ISA_LIMITS, Case, Row, cases, measure
from hk_backend.bench.layouts import LAYOUTS
from hk_backend.bench.options import Isa


@dataclass(frozen=True)
class Sweep:
    """What to measure: every case with every kind of keys and values."""

    cases: Sequence[Case]
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
    ) -> Sweep:
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
        )
        kinds = ["packed", *(f"{layout}/{size}" for layout in chosen for size in sizes)]
        return cls(grid, kinds, rounds)

    def run(self, on_case: Callable[[str], object]) -> Iterator[Row]:
        """Measure everything: a row per case and kind, failed ones included.

        `on_case` is told what comes next.
        """
        for number, case in enumerate(self.cases, 1):
            on_case(f"{number}/{len(self.cases)}  {case}, {len(self.kinds)} kinds of keys")
            yield from measure(case, self.kinds, self.rounds)


def limit_isa(isa: Isa | None) -> None:
    """Start this program over with both libraries held to `isa`: they read it when they load."""
    settings = ISA_LIMITS[isa.value] if isa else machine.workarounds()
    if any(os.environ.get(name) != value for name, value in settings.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **settings})


def use_threads(threads: int) -> None:
    """Compute with `threads` threads, both libraries; 0: as many as torch took."""
    if threads:
        torch.set_num_threads(threads)


def parse_names(text: str, valid: Sequence[str], option: str) -> list[str]:
    """A comma-separated list of names out of `valid`; else typer.BadParameter."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in valid:
            raise typer.BadParameter(f"{option}: {name!r} is not one of {', '.join(valid)}")
    return names


def parse_numbers(text: str, option: str, multiple_of: int = 1) -> list[int]:
    """A comma-separated list of positive numbers; else typer.BadParameter."""
    numbers = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < 1 or int(part) % multiple_of:
            kind = f"positive multiple of {multiple_of}" if multiple_of > 1 else "positive number"
            raise typer.BadParameter(f"{option}: {part.strip()!r} is not a {kind}")
        numbers.append(int(part))
    return numbers


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
