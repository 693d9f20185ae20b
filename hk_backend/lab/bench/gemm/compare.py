"""Compares HK's linear layers on a GPU with published times (`bench linear --device`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hk_backend.kernels.catalogue import Catalogue, catalogue
from hk_backend.kernels.gemm_operands import LAYERS, family
from hk_backend.lab import tables
from hk_backend.lab.bench.gemm.layers import Layer, name_of
from hk_backend.lab.bench.gemm.published import STOCK, Known, known
from hk_backend.lab.bench.gemm.timers import Clock, Problem, Timer
from hk_backend.lab.options import parse_names, parse_numbers
from hk_backend.lab.timing import calibration
from hk_backend.measurements.launches import Launches
from hk_backend.terms.measurements import MODELLED


@dataclass(frozen=True)
class PublishedCase:
    """A layer with M rows, and the best published time for it."""

    layer: Layer
    m: int
    stock: Known

    @property
    def name(self) -> str:
        """Name of the weight."""
        return name_of(self.layer.n, self.layer.k)

    @property
    def shape(self) -> str:
        """Shape of the weight as text, `NxK`."""
        return f"{self.layer.n}x{self.layer.k}"

    @property
    def tflop(self) -> float:
        return 2e-12 * self.m * self.layer.n * self.layer.k

    def __str__(self) -> str:
        return f"{self.layer}, M={self.m}"


@dataclass
class LaunchComparison:
    """A case with the launch that serves it, or with the error that prevented its timing.

    `source`: whether the time is measured or modelled.
    """

    case: PublishedCase
    source: str
    kernel: str = ""
    splits: int = 1
    microseconds: float = float("nan")
    error: str = ""

    @property
    def model_error(self) -> float | None:
        """Relative root-mean-square error of the timing model; None: the time is measured."""
        return calibration.error_of("gemm") if self.source == MODELLED else None

    @property
    def ratios(self) -> dict[str, float]:
        """HK's speed over the published kernel's; above 1 is a win."""
        return {"HK/stock": self.case.stock.microseconds / self.microseconds}

    def as_json(self) -> dict[str, Any]:
        """The row as plain data; times in microseconds."""
        case, layer = self.case, self.case.layer
        data = {
            "format": layer.format,
            "layer": case.name,
            "m": case.m,
            "n": layer.n,
            "k": layer.k,
            "stock": case.stock.microseconds,
            "stock_source": case.stock.source,
        }
        if self.error:
            return {**data, "error": self.error}
        return {
            **data,
            "kernel": self.kernel,
            "splits": self.splits,
            "microseconds": self.microseconds,
            "source": self.source,
            "model_error_rms": self.model_error,
            "error": "",
            **self.ratios,
        }


@dataclass(frozen=True)
class PublishedSweep:
    """Cases with published times, and the timer of HK's launches."""

    cases: Sequence[PublishedCase]
    timer: Timer

    @classmethod
    def parse(
        cls, timer: Timer, timed: Launches, layers: str = "all", tokens: str = "", formats: str = ""
    ) -> PublishedSweep:
        """The cases that comma-separated options describe; an empty option selects all.

        Raises:
            typer.BadParameter: an option's value is not valid; the message says what would be.
        """
        kernels = catalogue(timer.arch)
        every = list(published(kernels, timer.compute_units, timed))
        names = list(dict.fromkeys(case.name for case in every))
        served = list(dict.fromkeys(case.layer.format for case in every))
        rows = sorted({case.m for case in every})
        wanted = names if layers == "all" else parse_names(layers, names, "--layers")
        of = parse_names(formats, served, "--formats") if formats else served
        if tokens:
            valid = [str(m) for m in rows]
            rows = parse_numbers(",".join(parse_names(tokens, valid, "--tokens")), "--tokens")
        return cls(
            [
                case
                for case in every
                if case.name in wanted and case.layer.format in of and case.m in rows
            ],
            timer,
        )

    def run(self, on_case: Callable[[str], object]) -> Iterator[LaunchComparison]:
        """Yields one row for each case, failed ones included.

        `on_case` is called with a description of each finished case.
        """
        with ThreadPoolExecutor(self.timer.at_once) as pool:
            for number, row in enumerate(pool.map(self._row, self.cases), 1):
                on_case(f"{number}/{len(self.cases)}  {row.case}")
                yield row

    def _row(self, case: PublishedCase) -> LaunchComparison:
        layer = case.layer
        choice = layer.launch(case.m)
        problem = Problem(layer.of, case.m, layer.n, layer.k)
        try:
            time = self.timer.microseconds(choice.entry, choice.splits, problem)
        except RuntimeError as error:
            return LaunchComparison(case, self.timer.source, error=str(error))
        return LaunchComparison(case, self.timer.source, choice.entry.name, choice.splits, time)


def published(kernels: Catalogue, compute_units: int, timed: Launches) -> Iterator[PublishedCase]:
    """Yields the best published time of each layer and M, if HK has kernels for the layer."""
    for format, n, k in dict.fromkeys((each.format, each.n, each.k) for each in STOCK):
        found = family(kernels, LAYERS[format])
        if found:
            layer = Layer(format, n, k, found, compute_units, timed)
            for m, stock in sorted(known(format, n, k).items()):
                yield PublishedCase(layer, m, stock)


def clock(arch: str) -> Clock:
    """The timing model as a timer that uses every core."""
    return Clock(arch, len(os.sched_getaffinity(0)))


HEADINGS = (
    "layer", "N x K", "M", "format", "kernel", "splits",
    "HK us", "HK TF", "by", "stock us", "stock TF", "HK/stock", "stock by",
)  # fmt: skip
NARROW = tables.Narrow(
    grouped=2,
    short={"format": "", "kernel": "", "splits": "", "stock by": "", "HK/stock": "ratio"},
)


def names(row: LaunchComparison) -> list[str]:
    case = row.case
    return [case.name, case.shape, str(case.m), case.layer.format]


def figures(row: LaunchComparison) -> list[str]:
    case = row.case
    by = row.source if row.model_error is None else f"{row.source} ±{row.model_error:.0%}"
    ours, stock = row.microseconds, case.stock.microseconds
    return [
        row.kernel,
        str(row.splits),
        *(f"{ours:.4g}", tables.rate(case.tflop / ours * 1e6), by),
        *(f"{stock:.4g}", tables.rate(case.tflop / stock * 1e6)),
        tables.ratio(row.ratios["HK/stock"]),
        case.stock.source,
    ]


TITLE = "linear on a GPU, launches in a stream; stock: as published, on an MI355X"
TABLE = tables.Comparison(
    TITLE, HEADINGS, NARROW, names, figures, ("HK/stock",), "HK/stock", "stock"
)


def summary(rows: Sequence[LaunchComparison]) -> str:
    """One line: wins, losses, and how many are a draw within the model's error."""
    line = TABLE.summary(rows)
    close = [
        row
        for row in rows
        if not row.error and abs(row.ratios["HK/stock"] - 1) < (row.model_error or 0)
    ]
    return f"{line}; {len(close)} within the model's error of 1" if close else line
