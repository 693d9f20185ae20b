"""Writes the rows of `kernels --modelled` as JSON, Markdown and plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench_serving.kernels import write
from bench_serving.modelled import BASE, ModelledCase, ModelledKernel, run
from bench_serving.plots import plot_modelled
from hk_backend.kernels.catalogue import Catalogue
from hk_backend.lab import tables
from hk_backend.lab.timing import calibration

NOTE = (
    "Published figures are measurements on an MI355X, in bf16. In brackets: the ratio to the best "
    "of them, then, where it was modelled, to HipKittens' kernel by the same model; behind a "
    "semicolon, by the same model too: of a cache in FP8 to the same one in bf16, of others to our "
    f"own `{BASE}`. Bold: below 1. ±: the model's error (rms) on published figures. None of them "
    "is of a cache, so the error of what is behind a semicolon is unknown."
)


def model(
    kernels: Catalogue,
    cases: Sequence[ModelledCase],
    workers: int,
    out: Path,
    tell: Callable[[str], object],
) -> list[ModelledKernel]:
    """Model the cases and write `modelled.json`, `.md` and plots into `out`.

    After an interrupt, the rows modelled so far are written.
    """
    rows: list[ModelledKernel] = []
    try:
        for row in run(cases, workers, tell):
            rows.append(row)
    finally:
        if rows:
            _write(environment(kernels), rows, out / "modelled")
    return rows


def environment(kernels: Catalogue) -> dict[str, Any]:
    """Conditions that the figures depend on: model errors, arch, versions."""
    from hk_backend import __version__

    return {
        **{operator: calibration.statement(operator) for operator in kernels.families},
        "arch": kernels.arch,
        "hk": __version__,
        "compiler": ", ".join(sorted({entry.compiler for entry in kernels.kernels})),
    }


def _write(environment: dict[str, Any], rows: Sequence[ModelledKernel], file: Path) -> None:
    write(file, environment, rows, f"{summary(rows)}.", tables_of(rows))
    said = dict.fromkeys(calibration.statement(row.case.panel.operator) for row in rows)
    plot_modelled(rows, f"HK: {'; '.join(said)}. Others: as they published.", file)


def summary(rows: Sequence[ModelledKernel]) -> str:
    """One line: how many rows are ahead of the best published kernel, and how many behind."""
    good = [row for row in rows if not row.error]
    wins, failed = sum(row.ratio >= 1 for row in good), len(rows) - len(good)
    line = f"{wins} ahead of the best peer, {len(good) - wins} behind, {failed} failed"
    if not good:
        return line
    close = sum(abs(row.ratio - 1) < (row.model_error or 0) for row in good)
    smallest = min(row.ratio for row in good)
    return f"{line}; {close} within the model's error of it; smallest ratio {smallest:.2f}"


def tables_of(rows: Sequence[ModelledKernel]) -> str:
    """Markdown with one table for each panel.

    A table has HK's rates with their ratio to the best published one, the busiest unit, and the
    published rates.
    """
    panels = dict.fromkeys(row.case.panel.name for row in rows)
    parts = [f"{NOTE}\n"]
    for name in panels:
        shown = [row for row in rows if row.case.panel.name == name]
        parts.append(f"### {name}\n\n{_table(shown)}")
        parts += [f"{row.case.name}: {tables.FAILED}: {row.error}\n" for row in shown if row.error]
    return "\n".join(parts)


def _table(rows: Sequence[ModelledKernel]) -> str:
    panel = rows[0].case.panel
    sizes = sorted({row.case.size for row in rows})
    found = {(row.case.variant, row.case.size): row for row in rows}
    lines = []
    for line in dict.fromkeys(row.case.line for row in rows):
        own = {row.case.size: row for row in rows if row.case.line == line}
        bases = {size: found.get((row.case.base, size)) for size, row in own.items()}
        cells = (_cell(own.get(size), bases.get(size)) for size in sizes)
        lines.append([rows[0].label_of(line), *cells])
        lines.append([f"{line}, most time in", *(_busiest(own.get(size)) for size in sizes)])
    if any(row.case.hipkittens_modelled for row in rows):
        modelled = {row.case.size: str(row.case.hipkittens_modelled) for row in rows}
        lines.append([rows[0].label_of("HipKittens"), *(modelled[size] for size in sizes)])
    for peer, rates in panel.rates.items():
        published = dict(zip(panel.shapes, map(str, rates), strict=True))
        lines.append([f"{peer}, published", *(published[size] for size in sizes)])
    return tables.markdown(["TFLOP/s, N =", *map(str, sizes)], lines)


def _cell(row: ModelledKernel | None, base: ModelledKernel | None) -> str:
    """The cell of a row; `base`: the row of the variant that this one is compared with."""
    if row is None or row.error:
        return tables.FAILED if row else ""
    ratios = ", ".join(map(bold_below_one, filter(None, [row.ratio, row.ratio_modelled])))
    if base and not base.error and base is not row:
        ratios += f"; {bold_below_one(row.tflops / base.tflops)}"
    return f"{row.tflops:.0f} ({ratios})"


def bold_below_one(ratio: float) -> str:
    """A ratio to two digits; bold if these are below 1."""
    text = f"{ratio:.2f}"
    return text if float(text) >= 1 else f"**{text}**"


def _busiest(row: ModelledKernel | None) -> str:
    return f"{row.busiest.name} {row.busiest.share:.0%}" if row and row.busiest else ""
