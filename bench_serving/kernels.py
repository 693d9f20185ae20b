"""`python -m bench_serving kernels`: benchmarks operators, with JSON, Markdown and plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_serving import plots
from hk_backend.lab.bench import settings
from hk_backend.lab.bench.attention import table as attention
from hk_backend.lab.bench.linear import table as linear
from hk_backend.lab.commands.benchmark import TimedSweep, as_plain
from hk_backend.lab.tables import Comparison, markdown


@dataclass(frozen=True)
class Operator:
    """The table and the plot of one operator's benchmark; `name` also names its files."""

    name: str
    table: Comparison
    plot: Callable[[Any, str, Path], object]


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("attention", attention.TABLE, plots.plot_attention),
        Operator("linear", linear.TABLE, plots.plot_linear),
    )
}


def measure(
    operator: Operator, sweep: TimedSweep, out: Path, tell: Callable[[str], object]
) -> list[Any]:
    """Run `sweep` and write `<operator>.json`, `.md` and plots into `out`.

    After an interrupt, the rows measured so far are written.
    """
    environment = settings.environment(sweep.rounds)
    rows: list[Any] = []
    try:
        for row in sweep.run(tell):
            rows.append(row)
    finally:
        if rows:
            _write(operator, environment, rows, out)
    return rows


def _write(operator: Operator, environment: dict[str, Any], rows: list[Any], out: Path) -> None:
    table = markdown(operator.table.headings, map(operator.table.cells, rows))
    file = out / operator.name
    write(file, environment, rows, operator.table.summary(rows), table)
    operator.plot(rows, title(operator.name, environment), file)


def write(
    file: Path, environment: dict[str, Any], rows: Sequence[Any], summary: str, tables: str
) -> None:
    """Write `file` as `.json` and `.md`: the conditions of the benchmark, and its figures."""
    file.parent.mkdir(parents=True, exist_ok=True)
    report = json.dumps(as_plain(environment, rows), indent=2, allow_nan=False)
    file.with_suffix(".json").write_text(f"{report}\n")
    named = ", ".join(f"{name} {value}" for name, value in environment.items() if value != "")
    file.with_suffix(".md").write_text(f"{summary}\n\n{named}\n\n{tables}")


def title(name: str, environment: dict[str, Any]) -> str:
    """The title of a plot: the conditions that its numbers depend on."""
    device, threads, rounds = (environment[key] for key in ("device", "threads", "rounds"))
    lines = [
        f"{name}, {device}, {threads} threads, medians of {rounds} rounds",
        f"{environment['cpu']}, torch {environment['torch']} ({environment['torch_isa']})",
        environment["warning"],
    ]
    return "\n".join(filter(None, lines))
