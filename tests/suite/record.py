"""A whole slow run on one line, as docs/testing.md keeps the last one."""

from __future__ import annotations

import datetime

from hk_backend import machine
from tests.suite import tree
from tests.suite.held import native_isa
from tests.suite.results import OUTCOMES, Results, total


def row(parts: list[Results], isa: str | None) -> str:
    """Commit, date, processor, instruction set, counts, minutes: a row of Markdown."""
    counts = total(parts)
    cells = [
        tree.commit(),
        datetime.date.today().isoformat(),
        f"{machine.cpu_model()}, {machine.usable_cores()} cores",
        f"held to {isa}" if isa else native_isa(),
        *(str(counts[outcome]) for outcome in OUTCOMES),
        f"{sum(part.minutes for part in parts):.0f}",
    ]
    return f"| {' | '.join(cells)} |"
