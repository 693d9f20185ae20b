"""Measurements in tests of the plugins: both sides of a contest compute, in the test's times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hk_backend.engine.evidence import Contest, deciding
from hk_backend.terms.measurements import Times
from tests.integration.shared.attention.expected import RowTensors, check_rows

Time = Callable[[int], float]
"""Microseconds of one call, by its number of rows."""


@dataclass
class Bench:
    """A stand-in for `evidence.measure`.

    Attributes:
        ours, theirs: the times that it finds; HK is faster at first.
        rows: the numbers of rows of each contest that it has held.
        before: is called before each contest.
        outputs: what both sides computed in the last contest, by the number of rows.
    """

    ours: Time = lambda rows: 1.0
    theirs: Time = lambda rows: 2.0
    rows: list[tuple[int, ...]] = field(default_factory=list)
    before: Callable[[Contest], None] = lambda contest: None
    outputs: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def measure(self, contest: Contest, *_: object) -> tuple[tuple[Times, ...], tuple[int, ...]]:
        self.before(contest)
        self.rows.append(contest.rows)
        self.outputs = {
            rows: (contest.ours(rows)(), contest.theirs(rows)()) for rows in contest.rows
        }
        times = [
            Times(rows=rows, ours=self.ours(rows), theirs=self.theirs(rows))
            for rows in contest.rows
        ]
        return tuple(times), ()

    def let_the_engine_win(self) -> None:
        self.ours, self.theirs = (lambda rows: 2.0), (lambda rows: 1.0)


def start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process knows, as a second start does."""
    monkeypatch.setattr(deciding, "process", deciding.Process())


def assert_same_attention(bench: Bench, prompt: Callable[[int], RowTensors], **mask: Any) -> None:
    """Hold that HK and the parent computed each prompt as the reference does.

    `prompt` makes one of a given length.
    """
    for tokens, outputs in bench.outputs.items():
        row = prompt(tokens)
        for out in outputs:
            check_rows(out.view_as(row[0]), [row], **mask)
