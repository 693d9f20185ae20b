"""Draws the timeline of one CU: waves and units against clocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from hk_backend.lab.timing.calibration import statement
from hk_backend.lab.timing.report import Report
from hk_backend.lab.timing.timeline import STEPS, Spans, Timeline, Track, Window

SUFFIXES = (".png", ".svg")
DPI = 140
BINS = 320
"""Number of bins that the upper picture, of a whole workgroup, has."""


@dataclass(frozen=True)
class Kind:
    """Activities that are drawn in one colour.

    Saturated colours show an instruction that issues or a unit that works. Pale colours show a wave
    that waits for the unit of the same hue.
    """

    label: str
    color: str
    of: Sequence[tuple[str, str]]


KINDS = (
    Kind("matrix", "#1259a7", [("issue", "matrix"), ("busy", "matrix")]),
    Kind("vector", "#e07b00", [("issue", "vector"), ("busy", "vector")]),
    Kind("LDS", "#1d8348", [("issue", "lds"), ("busy", "lds")]),
    Kind(
        "memory",
        "#7d3c98",
        [("issue", "memory"), ("issue", "scalar memory"), ("busy", "memory")],
    ),
    Kind(
        "scalar, control",
        "#5d6d7e",
        [("issue", "scalar"), ("issue", "branch"), ("issue", "control")],
    ),
    Kind("its matrix result", "#6fa8dc", [("wait", "matrix result")]),
    Kind("the matrix unit", "#bcd9f5", [("wait", "matrix busy")]),
    Kind("the vector ALU", "#fcd9a4", [("wait", "vector busy")]),
    Kind("LDS or scalar data", "#76c893", [("wait", "lds")]),
    Kind("the LDS's queue", "#c3ecd0", [("wait", "lds busy")]),
    Kind("memory", "#b98fd1", [("wait", "vector memory")]),
    Kind("the memory path's queue", "#e3d0ef", [("wait", "memory busy")]),
    Kind("barrier", "#e4576b", [("wait", "barrier")]),
    Kind("its turn, s_nop, jumps", "#d5d8dc", [("wait", "other wave"), ("wait", "itself")]),
)
ISSUES = 5
"""Number of `KINDS`, from the first on, that are issues or work; the others are waits."""
IDLE = "#f7f7f7"
WAVE, UNIT, SHARED, GAP = 1.1, 0.5, 0.7, 0.5
"""Heights of a wave's row, of a SIMD unit's, of a shared unit's, and of the gap between groups."""
TITLE = {"loc": "left", "fontsize": "medium"}


def draw(report: Report, shown: Timeline, path: Path) -> list[Path]:
    """Write the picture; returns the files that were written.

    `path`: a .png or .svg file; with another suffix, or none, both are written beside it. Raises
    `OSError`.
    """
    places = _places(shown.tracks)
    height = sum(place.height for place in places)
    figure = Figure(figsize=(16, 3.2 + 0.5 * height), layout="constrained")
    whole, close = figure.subplots(2, 1)
    _draw_whole(whole, shown, places)
    _draw_close(close, shown, places)
    _legend(figure)
    figure.suptitle(_title(report), fontsize="large")
    files = [path] if path.suffix.lower() in SUFFIXES else [Path(f"{path}{s}") for s in SUFFIXES]
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        for file in files:
            figure.savefig(file, dpi=DPI)
    return files


def _title(report: Report) -> str:
    modelled, entry = report.modelled, report.workload.entry
    flops, rate = modelled.flops_per_second / 1e12, modelled.bytes_per_second / 1e9
    figure = f"{flops:,.4g} TFLOP/s" if flops else f"{rate:,.4g} GB/s"
    took = f"{modelled.microseconds:,.4g} us, {figure} ({statement(entry.operator)})"
    return f"{entry.name} on {modelled.arch}, {report.workload.text}: {took}"


@dataclass(frozen=True)
class Place:
    """Position and height of a track's row in the picture; y grows downwards."""

    track: Track
    y: float
    height: float


def _places(tracks: Sequence[Track]) -> list[Place]:
    places: list[Place] = []
    y, before = 0.0, tracks[0].simd
    for track in tracks:
        y += GAP if track.simd != before else 0
        before = track.simd
        height = WAVE if track.is_wave else SHARED if track.simd is None else UNIT
        places.append(Place(track, y, height))
        y += height
    return places


def _draw_whole(axis: Any, shown: Timeline, places: Sequence[Place]) -> None:
    """Draw the whole workgroup: in each bin, the share of every activity of each row."""
    start = shown.whole[0]
    edges = shown.bins(BINS)
    for place in places:
        _background(axis, place, shown.whole)
        below = np.zeros(len(edges) - 1)
        for kind, spans in _by_kind(place.track):
            above = below + sum(one.by_bin(edges) for one in spans)
            axis.fill_between(
                edges - start,
                _steps(place.y + place.height * (1 - below)),
                _steps(place.y + place.height * (1 - above)),
                step="post",
                color=kind.color,
                linewidth=0,
            )
            below = above
    for at in shown.loop or ():
        axis.axvline(at - start, color="black", linewidth=1, linestyle="--", zorder=3)
    first, last = (at - start for at in shown.close)
    axis.axvspan(first, last, facecolor="none", edgecolor="black", linewidth=1.5, zorder=4)
    _axes(axis, places, shown.whole, "clocks of the workgroup")
    which = f" (place {shown.place + 1} of {shown.places})" if shown.places > 1 else ""
    axis.set_title(f"a workgroup{which}: {_phases(shown)}; the frame is below", **TITLE)


def _phases(shown: Timeline) -> str:
    if not shown.loop:
        return f"{shown.whole[1] - shown.whole[0]:,} clocks"
    before, loop, after = np.diff([shown.whole[0], *shown.loop, shown.whole[1]])
    return (
        f"{before:,} clocks before its loop, {loop:,} in it (averaged by step), {after:,} after it"
    )


def _steps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of bins for `fill_between`, which wants the last value again at the last edge."""
    return np.append(values, values[-1])


def _draw_close(axis: Any, shown: Timeline, places: Sequence[Place]) -> None:
    """Draw a short window of the workgroup: every instruction and every wait."""
    window = shown.close
    for place in places:
        _background(axis, place, window)
        for kind, spans in _by_kind(place.track):
            cut = [one.within(window) for one in spans]
            axis.add_patch(_boxes(cut, place, window[0], kind.color))
    steps = [at for at in shown.steps if window[0] <= at < window[1]]
    for at in steps:
        axis.axvline(at - window[0], color="black", linewidth=1, linestyle=":", zorder=3)
    _axes(axis, places, window, f"clocks from clock {window[0] - shown.whole[0]:,} on")
    what = (
        f"{STEPS} steps of its loop" if window[0] in steps else f"{window[1] - window[0]:,} clocks"
    )
    axis.set_title(f"{what}: instructions as they issue, and waits in between", **TITLE)


def _boxes(spans: Sequence[Spans], place: Place, origin: float, color: str) -> PathPatch:
    """One outline of all of a row's spans of one colour, which keeps the file small."""
    starts = np.concatenate([one.starts for one in spans]) - origin
    ends = starts + np.concatenate([one.clocks for one in spans])
    top, bottom = np.full(len(starts), place.y), np.full(len(starts), place.y + place.height)
    corners = [(starts, top), (ends, top), (ends, bottom), (starts, bottom)]
    boxes = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    outline = Outline.make_compound_path_from_polys(boxes)
    return PathPatch(outline, facecolor=color, linewidth=0)


def _by_kind(track: Track) -> Iterator[tuple[Kind, list[Spans]]]:
    """Yields each kind of the track, issues first, with the spans of that kind."""
    for kind in KINDS:
        found = [track.spans[what] for what in kind.of if what in track.spans]
        if found:
            yield kind, found


def _background(axis: Any, place: Place, window: Window) -> None:
    axis.fill_between(
        [0, window[1] - window[0]], place.y, place.y + place.height, color=IDLE, linewidth=0
    )


def _axes(axis: Any, places: Sequence[Place], window: Window, label: str) -> None:
    """Label the rows on the left, and how busy the units are in the window on the right."""
    bottom = places[-1].y + places[-1].height
    clocks = window[1] - window[0]
    axis.set(xlim=(0, clocks), ylim=(bottom, 0), xlabel=label)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_yticks([p.y + p.height / 2 for p in places], [p.track.label for p in places])
    axis.tick_params(axis="y", length=0, labelsize="small")
    for spine in axis.spines.values():
        spine.set_visible(False)
    for place in places:
        if not place.track.is_wave:
            busy = sum(spans.within(window).total for spans in place.track.spans.values())
            axis.annotate(
                f"{busy / clocks:.0%}",
                (clocks, place.y + place.height / 2),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
    for simd, group in itertools.groupby(places, lambda place: place.track.simd):
        if simd is None:
            continue
        own = list(group)
        middle = (own[0].y + own[-1].y + own[-1].height) / 2
        axis.annotate(
            f"SIMD {simd}",
            (0, middle),
            xytext=(-76, 0),
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="center",
        )


def _legend(figure: Figure) -> None:
    for title, kinds, where in (
        ("issues; works", KINDS[:ISSUES], "outside lower left"),
        ("waits for", KINDS[ISSUES:], "outside lower right"),
    ):
        figure.legend(
            handles=[Patch(facecolor=kind.color, label=kind.label) for kind in kinds],
            title=title,
            alignment="left",
            loc=where,
            ncols=5,
            frameon=False,
            fontsize="small",
        )
