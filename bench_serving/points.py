"""Summarises the runs of a serving benchmark as points, and writes them as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_serving.engines.base import THROUGHPUT, TPOT, TTFT
from bench_serving.server import LLAMA_CPP
from hk_backend.lab.tables import markdown

METRICS = {
    THROUGHPUT: ("throughput", "tok/s"),
    TTFT: ("TTFT", "ms"),
    TPOT: ("TPOT", "ms"),
}
"""Names in tables and plots, and units, of fields of the client's result."""
MEANING = (
    "Medians of the rounds. Throughput counts tokens in and out; TTFT is the time to the first "
    "token, TPOT to each other one. (x): against the first backend; less TTFT and TPOT is better."
)


@dataclass
class Run:
    """One run of the client. `error`: why it counts as failed; it has no `metrics` then.

    `prompt_tokens`: number of prompt tokens of all requests, by the server's count; 0: unknown.
    """

    turn: int
    input_len: int
    concurrency: int
    backend: str
    metrics: dict[str, float] = field(default_factory=dict)
    routed_share: float | None = None
    error: str = ""
    prompt_tokens: int = 0

    @property
    def is_llama_cpp(self) -> bool:
        return self.backend.partition(":")[0] == LLAMA_CPP

    @property
    def place(self) -> tuple[int, int, int]:
        """The round, length and concurrency, at which all backends get the same requests."""
        return self.turn, self.input_len, self.concurrency

    def fail(self, error: str) -> None:
        """Mark the run as failed, and drop its metrics."""
        self.metrics, self.error = {}, error


@dataclass
class Point:
    """A backend's runs at one input length and concurrency: medians, or why there are none."""

    input_len: int
    concurrency: int
    backend: str
    medians: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    routed_share: float | None = None
    error: str = ""


def summarize(runs: Sequence[Run]) -> list[Point]:
    """One point for each input length, concurrency and backend; a failed run fails its point."""
    groups: dict[tuple[int, int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.input_len, run.concurrency, run.backend), []).append(run)
    return [_point(*where, group) for where, group in groups.items()]


def _point(input_len: int, concurrency: int, backend: str, runs: Sequence[Run]) -> Point:
    point = Point(input_len, concurrency, backend)
    failed = [run for run in runs if run.error]
    if failed:
        point.error = f"{len(failed)} of {len(runs)} runs failed: {failed[0].error}"
        return point
    point.samples = {name: [run.metrics[name] for run in runs] for name in METRICS}
    point.medians = {name: statistics.median(values) for name, values in point.samples.items()}
    shares = [run.routed_share for run in runs if run.routed_share is not None]
    point.routed_share = min(shares, default=None)
    return point


def document(points: Sequence[Point], named: Mapping[str, str]) -> str:
    """Markdown with the conditions of the benchmark and the table of its points."""
    lines = "".join(f"- {name}: {text}\n" for name, text in named.items())
    return f"# Serving {named['model']}\n\n{lines}\n{table(points)}"


def title(named: Mapping[str, str]) -> str:
    """The title of a plot: the conditions of the benchmark, in a few lines."""
    beside = [named[name] for name in ("beside it",) if name in named]
    first = ", ".join([named["model"], named["engine"], *beside])
    second = f"{named['requests']}, {named['rounds']}"
    rest = [
        named[name] for name in ("processor", "versions", "arguments", "warning") if name in named
    ]
    return "\n".join([first, second, *rest])


def table(points: Sequence[Point]) -> str:
    """A Markdown table with a line for each point.

    Each backend is compared with the first one at the same input length and concurrency.
    """
    rows = []
    first: dict[tuple[int, int], Point] = {}
    for point in sorted(points, key=lambda point: (point.input_len, point.concurrency)):
        base = first.setdefault((point.input_len, point.concurrency), point)
        where = [str(point.input_len), str(point.concurrency), point.backend]
        if point.error:
            rows.append([*where, f"failed: {point.error}", *[""] * len(METRICS)])
            continue
        numbers = [_cell(point, base, name) for name in METRICS]
        share = "" if point.routed_share is None else f"{point.routed_share:.1%}"
        rows.append([*where, *numbers, share])
    metrics = [f"{name} ({unit})" for name, unit in METRICS.values()]
    headings = ["tokens in", "concurrency", "backend", *metrics, "routed to HK"]
    return f"{markdown(headings, rows)}\n{MEANING}\n"


def _cell(point: Point, base: Point, name: str) -> str:
    text = f"{point.medians[name]:.1f}"
    if point is base or base.error:
        return text
    return f"{text} ({point.medians[name] / base.medians[name]:.2f}x)"
