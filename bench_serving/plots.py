"""Plots of serving and kernel benchmarks, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from bench_serving.engines.base import THROUGHPUT
from bench_serving.modelled import KEYS, ModelledKernel
from bench_serving.points import METRICS, Point
from hk_backend.lab.bench.attention.measure import AttentionTiming
from hk_backend.lab.bench.linear.measure import LinearTiming

COLORS = {
    "stock": "#767676",
    "hk": "#c8102e",
    "hk fp8": "#7b2d8e",
    "sdpa": "#767676",
    "matmul": "#b8b8b8",
}
PEERS = {
    "HipKittens": "C0",
    "AITER": "C1",
    "AITER assembly": "C1",
    "FlyDSL": "C5",
    "OPUS": "C6",
    "hipBLASLt": "C4",
    "CK": "C2",
    "Triton": "C9",
    "PyTorch": COLORS["stock"],
}
LINE_STYLES = ("-", "--", ":", "-.")
MODELLED_STYLES = dict(zip(KEYS, LINE_STYLES, strict=True))


def plot_serving(points: Sequence[Point], title: str, path: Path) -> list[Path]:
    """Throughput, TTFT and TPOT against concurrency: medians as lines, every run as a dot.

    A failed point is a cross on the axis, since nobody would notice a gap.
    """
    figure = Figure(figsize=(5 * len(METRICS), 4.4), layout="constrained")
    axes = figure.subplots(1, len(METRICS))
    lens = sorted({point.input_len for point in points})
    names = dict.fromkeys(point.backend for point in points)
    colors = {name: COLORS.get(name, f"C{place}") for place, name in enumerate(names)}
    for axis, (metric, (label, unit)) in zip(axes, METRICS.items(), strict=True):
        for backend, color in colors.items():
            for input_len in lens:
                line = [p for p in points if (p.backend, p.input_len) == (backend, input_len)]
                style = LINE_STYLES[lens.index(input_len) % len(LINE_STYLES)]
                name = f"{backend}, {input_len} tokens in" if len(lens) > 1 else backend
                _serving_line(axis, line, metric, color, style, name)
        counted = " in and out" if metric == THROUGHPUT else ""
        axis.set(
            xlabel="concurrency", title=f"{label} ({unit}{counted})", ylim=(0, None), xscale="log"
        )
        _plain_ticks(axis, sorted({point.concurrency for point in points}))
    return _save(figure, axes, title, path)


def _serving_line(
    axis: Any, line: Sequence[Point], metric: str, color: str, style: str, name: str
) -> None:
    good = [point for point in line if not point.error]
    medians = [point.medians[metric] for point in good]
    axis.plot([p.concurrency for p in good], medians, style, color=color, label=name, marker="o")
    for point in good:
        samples = point.samples[metric]
        axis.plot([point.concurrency] * len(samples), samples, ".", color=color, alpha=0.4)
    failed = [point.concurrency for point in line if point.error]
    if failed:
        axis.plot(failed, [0] * len(failed), "x", color=color, clip_on=False, markersize=10,
                  label=f"{name}: failed")  # fmt: skip


def plot_attention(rows: Sequence[AttentionTiming], title: str, path: Path) -> list[Path]:
    """GFLOP/s against the length: a panel per dtype, head size and heads."""
    kinds = [row for row in rows if row.kv == "packed"]
    panels = list(dict.fromkeys(_panel(row) for row in kinds))
    figure, axes = _grid(len(panels))
    for axis, panel in zip(axes.flat, panels, strict=False):
        shown = [row for row in kinds if _panel(row) == panel]
        good = [row for row in shown if not row.error]
        lengths = [row.case.tokens for row in good]
        axis.plot(lengths, [row.matmul for row in good], ":", color=COLORS["matmul"],
                  label="torch float32 matmul")  # fmt: skip
        axis.plot(
            lengths, [row.sdpa for row in good], "o-", color=COLORS["sdpa"], label="torch SDPA"
        )
        axis.plot(lengths, [row.hk for row in good], "o-", color=COLORS["hk"], label="HK")
        failed = [row.case.tokens for row in shown if row.error]
        if failed:
            axis.plot(failed, [0] * len(failed), "x", color=COLORS["hk"], clip_on=False)
        axis.set(title=panel, ylim=(0, None), xscale="log", xlabel="tokens", ylabel="GFLOP/s")
        _plain_ticks(axis, sorted({row.case.tokens for row in shown}))
    return _save(figure, axes.flat, title, path)


def plot_linear(rows: Sequence[LinearTiming], title: str, path: Path) -> list[Path]:
    """GFLOP/s against the number of tokens: a panel per layer, a line per weight format."""
    layers = list(dict.fromkeys(row.case.layer for row in rows))
    figure, axes = _grid(len(layers))
    for axis, layer in zip(axes.flat, layers, strict=False):
        shown = [row for row in rows if row.case.layer == layer]
        good = [row for row in shown if not row.error]
        for style, dense in zip(LINE_STYLES, ("fp32", "bf16"), strict=False):
            rates = {r.case.tokens: r.case.flops / getattr(r, f"{dense}_ms") / 1e6 for r in good}
            axis.plot(list(rates), list(rates.values()), style, color=COLORS["stock"],
                      label=f"torch {dense}")  # fmt: skip
        for name in dict.fromkeys(row.format for row in good):
            line = [row for row in good if row.format == name]
            axis.plot([r.case.tokens for r in line], [r.gflops for r in line], "o-",
                      label=f"HK {name}")  # fmt: skip
        failed = [row.case.tokens for row in shown if row.error]
        if failed:
            axis.plot(failed, [1] * len(failed), "x", color=COLORS["hk"], clip_on=False)
        axis.set(title=layer, xscale="log", yscale="log", xlabel="tokens", ylabel="GFLOP/s")
        _plain_ticks(axis, sorted({row.case.tokens for row in shown}))
    return _save(figure, axes.flat, title, path)


def plot_modelled(rows: Sequence[ModelledKernel], title: str, path: Path) -> list[Path]:
    """TFLOP/s against N: modelled lines of HK with an error band, and published ones of others.

    HipKittens also has a modelled line.
    """
    panels = list(dict.fromkeys(row.case.panel.name for row in rows))
    figure, axes = _grid(len(panels))
    for axis, name in zip(axes.flat, panels, strict=False):
        shown = [row for row in rows if row.case.panel.name == name]
        sizes = sorted({row.case.size for row in shown})
        for peer in shown[0].case.peers:
            rates = {row.case.size: row.case.peers[peer] for row in shown}
            axis.plot(sizes, [rates[n] for n in sizes], ".-", color=PEERS[peer], label=peer)
        if shown[0].case.hipkittens_modelled:
            modelled = {row.case.size: row.case.hipkittens_modelled for row in shown}
            axis.plot(sizes, [modelled[n] for n in sizes], "--", color=PEERS["HipKittens"],
                      label=shown[0].label_of("HipKittens"))  # fmt: skip
        for variant in dict.fromkeys(row.case.variant for row in shown):
            _modelled_line(axis, [row for row in shown if row.case.variant == variant])
        axis.set(title=name, ylim=(0, None), xscale="log", xlabel="N", ylabel="TFLOP/s")
        _plain_ticks(axis, sizes)
        axis.tick_params(labelbottom=True)
    return _save(figure, axes.flat, title, path)


def _modelled_line(axis: Any, line: Sequence[ModelledKernel]) -> None:
    """Draw a modelled line of HK.

    The line's style shows the layout of the keys; its colour shows the type they are stored in.
    """
    good = [row for row in line if not row.error]
    error, sizes = line[0].model_error, [row.case.size for row in good]
    label = line[0].label_of(line[0].case.line)
    keys, _, stored = line[0].case.variant.partition(" ")
    style, color = MODELLED_STYLES.get(keys, "-"), COLORS[f"hk {stored}".strip()]
    axis.plot(sizes, [r.tflops for r in good], f"o{style}", color=color, label=label)
    if error is not None:
        low, high = ([row.tflops * (1 + sign * error) for row in good] for sign in (-1, 1))
        axis.fill_between(sizes, low, high, color=color, alpha=0.1)
    failed = [row.case.size for row in line if row.error]
    if failed:
        axis.plot(failed, [0] * len(failed), "x", color=color, clip_on=False)


def _grid(panels: int) -> tuple[Figure, Any]:
    """A figure with one axis for each panel, at most four in a row; surplus axes are hidden."""
    columns = min(4, panels)
    lines = -(-panels // columns)
    figure = Figure(figsize=(4 * columns, 3.4 * lines + 0.8), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True)
    for axis in list(axes.flat)[panels:]:
        axis.set_visible(False)
    return figure, axes


def _panel(row: AttentionTiming) -> str:
    case = row.case
    return f"{case.dtype}, d={case.head_size}, heads {case.num_heads}/{case.num_kv_heads}"


def _plain_ticks(axis: Any, ticks: Sequence[int]) -> None:
    """Label a logarithmic axis with plain numbers, one for each measured value."""
    axis.set_xticks(ticks)
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.minorticks_off()
    axis.grid(alpha=0.25)


def _save(figure: Figure, axes: Iterable[Any], title: str, path: Path) -> list[Path]:
    """Add a title and one legend for all panels, and write the figure as PNG and SVG."""
    entries: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, fontsize="medium")
    files = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        for file in files:
            figure.savefig(file, dpi=140)
    return files
