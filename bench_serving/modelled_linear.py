"""Linear layers of `kernels --modelled`: HK's modelled launches beside published times.

The results are written as JSON and as Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench_serving.kernels import write
from bench_serving.modelled_report import environment
from hk_backend.kernels.catalogue import Catalogue
from hk_backend.lab import tables
from hk_backend.lab.bench.gemm.compare import LaunchComparison, PublishedSweep, summary
from hk_backend.lab.bench.gemm.timers import Clock
from hk_backend.lab.timing import calibration
from hk_backend.measurements.launches import Launches

WORD = "linear"
"""Word of `--cases` that selects the linear layers."""
HEADINGS = ("layer", "M", "HK us", "published us", "ratio", "kernel", "splits")


def model(
    kernels: Catalogue, workers: int, out: Path, tell: Callable[[str], object]
) -> list[LaunchComparison]:
    """Model every published case and write `modelled_linear.json` and `.md` into `out`."""
    rows = list(PublishedSweep.parse(Clock(kernels.arch, workers), Launches()).run(tell))
    write(out / "modelled_linear", environment(kernels), rows, f"{summary(rows)}.", table_of(rows))
    return rows


def table_of(rows: Sequence[LaunchComparison]) -> str:
    """Markdown with one table for each format and source of published figures."""
    error = calibration.error_of("gemm") or 0.0
    parts = [
        f"HK's launches as the planner chooses them, in a stream, modelled ±{error:.0%}; TFLOP/s "
        "in brackets. The rounding of activations is not in it, nor in what is published. Ratio: "
        "the published time over HK's; bold: below 1.\n"
    ]
    groups = dict.fromkeys((row.case.layer.format, row.case.stock.source) for row in rows)
    for format, source in groups:
        of = [r for r in rows if (r.case.layer.format, r.case.stock.source) == (format, source)]
        parts.append(f"### {format}, published: {source}\n\n{_table(of)}")
        parts += [f"{row.case}: {tables.FAILED}: {row.error}\n" for row in of if row.error]
    return "\n".join(parts)


def _table(rows: Sequence[LaunchComparison]) -> str:
    return tables.markdown(HEADINGS, map(_cells, rows))


def _cells(row: LaunchComparison) -> list[str]:
    case = row.case
    published = _time(case.stock.microseconds, case.tflop)
    what = [" ".join(dict.fromkeys((case.name, case.shape))), str(case.m)]
    if row.error:
        return [*what, tables.FAILED, published, "", "", ""]
    ratio = tables.ratio(row.ratios["HK/stock"])
    ratio = ratio if float(ratio) >= 1 else f"**{ratio}**"
    ours = _time(row.microseconds, case.tflop)
    return [*what, ours, published, ratio, row.kernel, str(row.splits)]


def _time(microseconds: float, tflop: float) -> str:
    return f"{microseconds:.4g} ({tables.rate(tflop / microseconds * 1e6)})"
