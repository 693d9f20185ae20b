"""Short tables of `kernels --modelled` for a document: chosen shapes, ranges, and every loss.

The complete tables are in the files that `modelled_report` and `modelled_linear` write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from bench_serving.modelled import BASE, ModelledKernel
from bench_serving.modelled_report import bold_below_one, summary
from hk_backend.lab import tables
from hk_backend.lab.bench.gemm import compare

KERNELS = (
    "<!-- modelled kernels: written by `make modelled` -->\n",
    "<!-- end of modelled kernels -->\n",
)
LINEAR = (
    "<!-- modelled linear layers: written by `make modelled` -->\n",
    "<!-- end of modelled linear layers -->\n",
)
"""Lines of the document before and after each part."""
SIZES = (1024, 4096, 8192)
LINES = (
    "attention d128 causal b16 64/8, packed",
    *(f"attention {each} b16 64/8, {BASE}" for each in ("d128 causal", "d128 full")),
    *(f"attention {each} b16 64/8, {BASE}" for each in ("d64 causal", "d64 full")),
    f"attention d128 causal b1 32/8, {BASE}",
    "gemm bf16",
)
"""Shapes and caches of the short table."""


def line_of(row: ModelledKernel) -> str:
    """Name of a row's line: the shape and the layout of its keys."""
    return ", ".join(filter(None, (row.case.panel.name, row.case.variant)))


def kernels_text(rows: Sequence[ModelledKernel]) -> str:
    """Markdown of the modelled kernels: the chosen shapes, the losses, the forms of caches."""
    good = [row for row in rows if not row.error]
    losses = "; ".join(f"{line_of(row)}, N={row.case.size}: {cell(row)}" for row in _losses(good))
    failed = [f"{row.case.name}: {tables.FAILED}: {row.error}" for row in rows if row.error]
    said = f"All losses: {losses or 'none'}."
    others = [ratio for row in good if (ratio := row.ratio_modelled)]
    if others:
        said += f" HK's rate over that of HipKittens' kernels, both modelled: {_range(others)}."
    return "\n\n".join([f"{summary(rows)}.", _chosen(rows), said, *failed, _forms(good)]).strip()


def _losses(rows: Sequence[ModelledKernel]) -> list[ModelledKernel]:
    return [row for row in rows if row.ratio < 1]


def _chosen(rows: Sequence[ModelledKernel]) -> str:
    found = {(line_of(row), row.case.size): row for row in rows}
    lines = [
        [line, *(cell(row) if (row := found.get((line, n))) else "" for n in SIZES)]
        for line in LINES
        if any((line, n) in found for n in SIZES)
    ]
    error = rows[0].model_error or 0
    heading = f"TFLOP/s: HK, modelled ±{error:.0%} / best published = ratio"
    return tables.markdown([heading, *(f"N={n}" for n in SIZES)], lines).strip()


def cell(row: ModelledKernel) -> str:
    """HK's modelled rate, the best published one with its kernel, and their ratio."""
    if row.error:
        return tables.FAILED
    peer, rate = max(row.case.peers.items(), key=lambda each: each[1])
    return f"{row.tflops:.0f} / {rate} {peer} = {bold_below_one(row.ratio)}"


def _forms(rows: Sequence[ModelledKernel]) -> str:
    """Table of every cache's rate in units of the one that it is compared with."""
    found = {(row.case.panel.name, row.case.size, row.case.variant): row for row in rows}
    ratios: dict[str, dict[int, list[float]]] = {}
    for (panel, size, variant), row in found.items():
        base = found.get((panel, size, row.case.base))
        if variant and base and base is not row:
            head_size = int(row.case.panel.facts["head_size"])
            of_form = ratios.setdefault(variant, {}).setdefault(head_size, [])
            of_form.append(row.tflops / base.tflops)
    head_sizes = sorted({head_size for of_form in ratios.values() for head_size in of_form})
    headings = ["keys and values", "in units of", *(f"d={head_size}" for head_size in head_sizes)]
    lines = [
        [
            variant,
            variant.removesuffix(" fp8") if variant.endswith(" fp8") else BASE,
            *(_range(of_form.get(head_size, ())) for head_size in head_sizes),
        ]
        for variant, of_form in ratios.items()
    ]
    return tables.markdown(headings, lines) if lines else ""


def _range(ratios: Iterable[float]) -> str:
    found = sorted(ratios)
    return " to ".join(map(bold_below_one, (found[0], found[-1]))) if found else ""


def linear_text(rows: Sequence[compare.LaunchComparison]) -> str:
    """Markdown of the modelled linear layers: each source's range of ratios, and every loss."""
    failed = [f"{row.case}: {tables.FAILED}: {row.error}" for row in rows if row.error]
    groups: dict[tuple[str, str], list[compare.LaunchComparison]] = {}
    for row in rows:
        if not row.error:
            groups.setdefault((row.case.layer.format, row.case.stock.source), []).append(row)
    headings = ("format", "published by", "shapes", "smallest ratio", "median", "largest", "losses")
    table = tables.markdown(headings, ([*key, *_group(of)] for key, of in groups.items()))
    return "\n\n".join([f"{compare.summary(rows)}.", *failed, table]).strip()


def _group(rows: Sequence[compare.LaunchComparison]) -> list[str]:
    ratios = [row.ratios["HK/stock"] for row in rows]
    ends = map(bold_below_one, (min(ratios), median(ratios), max(ratios)))
    losses = "; ".join(loss(row) for row in rows if row.ratios["HK/stock"] < 1)
    return [str(len(rows)), *ends, losses]


def loss(row: compare.LaunchComparison) -> str:
    """HK's time and the published one, in microseconds, and their ratio."""
    case, ratio = row.case, bold_below_one(row.ratios["HK/stock"])
    times = f"{row.microseconds:.4g} / {case.stock.microseconds:.4g} us"
    return f"{case.name}, M={case.m}: {times} = {ratio}"
