"""`python -m bench_serving kernels`: the operator's benchmark as JSON, Markdown and a plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hk_backend.bench.attention import Row
from hk_backend.bench.sweep import Sweep
from hk_backend.bench.tables import HEADINGS, cells, markdown, summary


def measure(plan: Sweep, out: Path, tell: Callable[[str], object]) -> list[Row]:
    """Run the sweep of `hk-backend bench attention` and write `kernels.json`, `.md`, plots."""
    from bench_serving.plots import plot_kernels

    environment, rows = plan.run(tell)
    out.mkdir(parents=True, exist_ok=True)
    report = {"environment": environment, "cases": [row.as_json() for row in rows]}
    (out / "kernels.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    settings = ", ".join(f"{name} {value}" for name, value in environment.items())
    text = f"{summary(rows)}\n\n{settings}\n\n{markdown(HEADINGS, map(cells, rows))}"
    (out / "kernels.md").write_text(text)
    title = f"attention_prefill, {environment['device']}, {environment['threads']} threads"
    plot_kernels(rows, title, out / "kernels")
    return rows
