"""Draws the waves of one traced CU: hardware above the model, with what each wave waited at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from hk_backend.lab.timing.hardware.assumed import Loop
from hk_backend.lab.timing.hardware.dispatch import Line
from hk_backend.lab.timing.hardware.errors import ISSUE, kind_of
from hk_backend.lab.timing.hardware.replay import Beside, Clocks, first_clock

COLORS = {
    "vmcnt": "#b98fd1",
    "memory": "#7d3c98",
    "lgkmcnt": "#76c893",
    "both counters": "#4aa3a2",
    "lds": "#1d8348",
    "matrix": "#6fa8dc",
    "vector": "#fcd9a4",
    "s_barrier": "#e4576b",
    "scalar": "#5d6d7e",
    "branch": "#5d6d7e",
    "s_nop": "#d5d8dc",
}
"""Colours of stalls, by the kind of the instruction that a wave waits at."""
BUSY = "#f2efe9"
MOST_WAVES = 16
"""Waves that are drawn: those of the first workgroups."""
TURNS = 3
"""Turns of the loop that the right half shows, in the middle of the first wave."""
CLOSE = 4000
"""Clocks that the right half shows of a kernel without a loop."""
INCHES, DPI = 0.34, 140
SUFFIXES = (".png", ".svg")
Window = tuple[int, int]


def draw(
    besides: Sequence[Beside], lines: Sequence[Line], loop: Loop | None, title: str, path: Path
) -> list[Path]:
    """Write the picture of one CU; returns the files that were written.

    On the left are whole waves, on the right some turns of `loop`: the same turns on hardware and
    by the model. `path`: a .png or .svg file; with another suffix, or none, both are written beside
    it. Raises `OSError`.
    """
    shown = sorted(besides, key=lambda beside: beside.wave.begin)[:MOST_WAVES]
    kinds = np.array([kind_of(line) for line in lines])
    begin = min(first_clock(beside.wave) for beside in shown)
    figure = Figure(figsize=(18, 1.6 + INCHES * 2 * len(shown)), layout="constrained")
    grid = figure.subplots(2, 2, squeeze=False)
    for axes, of_hardware in zip(grid, (True, False), strict=True):
        rows = [_shifted(beside, begin, of_hardware) for beside in shown]
        windows = (None, _close(shown[0], rows[0], loop))
        for axis, window in zip(axes, windows, strict=True):
            for row, (beside, clocks) in enumerate(zip(shown, rows, strict=True)):
                _draw_row(axis, row, clocks, kinds[beside.wave.steps["line"]], window)
            axis.set_title("hardware" if of_hardware else "model", loc="left", fontsize="medium")
            names = [f"SIMD {beside.wave.simd}, slot {beside.wave.slot}" for beside in shown]
            axis.set_yticks(range(len(shown)), names, fontsize="x-small")
            axis.invert_yaxis()
            axis.set_xlabel("clocks; a colour is a stall, by what the wave waits at")
    figure.suptitle(title, fontsize="medium")
    used = [kind for kind in COLORS if (kinds == kind).any()]
    handles = [Patch(color=COLORS[kind], label=kind) for kind in used]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(used), fontsize="small")
    files = [path] if path.suffix in SUFFIXES else [path.with_suffix(end) for end in SUFFIXES]
    for file in files:
        figure.savefig(file, dpi=DPI)
    return files


def _shifted(beside: Beside, begin: int, of_hardware: bool) -> Clocks:
    """Clocks of a wave's issues, counted from the beginning of the first wave."""
    own = beside.hardware if of_hardware else beside.model
    return own + first_clock(beside.wave) - begin


def _close(beside: Beside, clocks: Clocks, loop: Loop | None) -> Window:
    """The clocks of some turns of the loop in the middle of a wave."""
    lines = beside.wave.steps["line"]
    heads = np.flatnonzero(lines == (loop[0] if loop else -1))
    middle = len(heads) // 2
    if middle + TURNS < len(heads):
        return int(clocks[heads[middle]]), int(clocks[heads[middle + TURNS]])
    at = int(clocks[len(clocks) // 2])
    return at, at + CLOSE


def _draw_row(
    axis: Axes, row: int, clocks: Clocks, kinds: NDArray[np.str_], window: Window | None
) -> None:
    """One wave: its life, and its stalls on top."""
    first, last = window or (int(clocks[0]), int(clocks[-1]))
    if window:
        axis.set_xlim(first, last)
    axis.broken_barh([(clocks[0], clocks[-1] - clocks[0])], (row - 0.4, 0.8), color=BUSY)
    stalls = np.diff(clocks) - ISSUE
    seen = (stalls > 0) & (clocks[1:] >= first) & (clocks[:-1] <= last)
    for kind, color in COLORS.items():
        at = np.flatnonzero((kinds[1:] == kind) & seen)
        spans = [(clocks[i] + ISSUE, stalls[i]) for i in at]
        axis.broken_barh(spans, (row - 0.4, 0.8), color=color, linewidth=0)
