"""`python -m bench_serving kernels`: the operator's benchmark as JSON, Markdown and a plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hk_backend.bench.attention import Row, environment
from hk_backend.bench.sweep import Sweep
from hk_backend.bench.tables import HEADINGS, cells, markdown, summary


def measure(plan: Sweep, out: Path, tell: Callable[[str], object]) -> list[Row]:
    """Run the sweep of `hk-backend bench attention` and write `kernels.json`, `.md`, plots.

    What was measured until an interrupt is written too.
    """
    settings = environment(plan.rounds)
    rows: list[Row] = []
    try:
        for row in plan.run(tell):
            rows.append(row)
    finally:
        if rows:
            _write(settings, rows, out)
    return rows


def _write(settings: dict[str, Any], rows: list[Row], out: Path) -> None:
    from bench_serving.plots import plot_kernels

    out.mkdir(parents=True, exist_ok=True)
    report = {"environment": settings, "cases": [row.as_json() for row in rows]}
    (out / "kernels.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    named = ", ".join(f"{name} {value}" for name, value in settings.items())
    text = f"{summary(rows)}\n\n{named}\n\n{markdown(HEADINGS, map(cells, rows))}"
    (out / "kernels.md").write_text(text)
    title = f"attention_prefill, {settings['device']}, {settings['threads']} threads"
    plot_kernels(rows, title, out / "kernels")
