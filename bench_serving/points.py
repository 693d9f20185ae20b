"""The points of a serving benchmark: runs at one place summarised, and what is written of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_serving.engines.base import THROUGHPUT, TPOT, TTFT
from bench_serving.server import LLAMA_CPP
from hk_backend.bench.tables import markdown

METRICS = {
    THROUGHPUT: ("throughput", "tok/s"),
    TTFT: ("TTFT", "ms"),
    TPOT: ("TPOT", "ms"),
}
"""Fields of the client's result: how they are called in table and plot, and their units."""
MEANING = (
    "Medians of the rounds. Throughput counts tokens in and out; TTFT is the time to the first "
    "token, TPOT to each other one. (x): against the first backend; less TTFT and TPOT is better."
)


@dataclass
class Run:
    """One run of the client. `error`: why it counts as failed; then there are no `metrics`.

    `prompt_tokens`: of all requests, as vLLM's client has them from the server; 0: not known.
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
        """What all backends are given the same requests at."""
        return self.turn, self.input_len, self.concurrency

    def fail(self, error: str) -> None:
        """Let it count as failed."""
        self.metrics, self.error = {}, error


@dataclass
class Point:
    """The runs of one backend at one concurrency: medians, or why there are none."""

    input_len: int
    concurrency: int
    backend: str
    medians: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    routed_share: float | None = None
    error: str = ""


def summarize(runs: Sequence[Run]) -> list[Point]:
    """One point per input length, concurrency and backend; one failed run fails its point."""
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
    """Markdown that says by itself what was measured, on what and how."""
    lines = "".join(f"- {name}: {text}\n" for name, text in named.items())
    return f"# Serving {named['model']}\n\n{lines}\n{table(points)}"


def title(named: Mapping[str, str]) -> str:
    """The same for a plot, in a few lines."""
    beside = [named[name] for name in ("beside it",) if name in named]
    first = ", ".join([named["model"], named["engine"], *beside])
    second = f"{named['requests']}, {named['rounds']}"
    rest = [
        named[name] for name in ("processor", "versions", "arguments", "warning") if name in named
    ]
    return "\n".join([first, second, *rest])


def table(points: Sequence[Point]) -> str:
    """Markdown: a line per point, each backend against the first one at the same place."""
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
