"""The activity of one CU, clock by clock: a track for each wave and for each unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hk_backend.lab.timing.compute_unit import counted, run_one

if TYPE_CHECKING:
    from hk_backend.lab.timing.report import Report

Window = tuple[int, int]
"""A window of clocks: [first, second)."""
STEPS = 3
"""Number of the loop's steps that the lower picture shows in detail."""
CLOSE = 8000
"""Number of clocks that the lower picture shows if the kernel has too few steps."""

SIMD_UNITS = ("matrix", "vector")
SHARED_UNITS = {"lds": "LDS", "memory": "memory path"}


@dataclass(frozen=True)
class Spans:
    """Stretches of clocks of one activity, in order and without overlap."""

    starts: NDArray[np.float64]
    clocks: NDArray[np.float64]

    def within(self, window: Window) -> Spans:
        """These spans, cut to a window."""
        ends = np.clip(self.starts + self.clocks, *window)
        starts = np.clip(self.starts, *window)
        kept = ends > starts
        return Spans(starts[kept], (ends - starts)[kept])

    def by_bin(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of each bin that the spans cover."""
        if not len(self.starts):
            return np.zeros(len(edges) - 1)
        at = np.stack([self.starts, self.starts + self.clocks], axis=1).ravel()
        total = np.cumsum(self.clocks)
        covered = np.stack([total - self.clocks, total], axis=1).ravel()
        share: NDArray[np.float64] = np.diff(np.interp(edges, at, covered)) / np.diff(edges)
        return share

    @property
    def total(self) -> float:
        return float(self.clocks.sum())


@dataclass(frozen=True)
class Track:
    """The activity of a wave's place, or of a unit.

    spans: stretches by activity: ("issue", unit), ("wait", stall) or ("busy", unit).
    """

    label: str
    simd: int | None
    """Number of the SIMD; None: the whole CU shares the unit."""
    is_wave: bool
    spans: Mapping[tuple[str, str], Spans]


@dataclass(frozen=True)
class Timeline:
    """The activity of a CU from the start to the end of one representative workgroup."""

    tracks: Sequence[Track]
    """Tracks from top to bottom: for each SIMD its waves, then its units; last the CU's units."""
    whole: Window
    loop: Window | None
    """Clocks from the first instruction of the loop to the last; None: there is no loop."""
    close: Window
    """Clocks of the detailed picture: `STEPS` steps in the loop's middle, else `CLOSE` clocks."""
    steps: Sequence[int]
    """Clocks at which the first wave begins each step of the loop."""
    place: int
    """Index of the workgroup among those that the CU holds; labels of waves count from 1."""
    places: int

    def bins(self, count: int) -> NDArray[np.float64]:
        """Edges of about `count` bins, or fewer, of the whole workgroup.

        Bins have equal lengths outside the loop. Inside, each covers whole steps, so that all bins
        show the same.
        """
        even = np.linspace(*self.whole, count)
        steps = np.array(self.steps[:: -(-2 * len(self.steps) // count)], float)
        if len(steps) <= STEPS:
            return even
        outside = (even < steps[0] - 1) | (even > steps[-1] + 1)
        return np.sort(np.concatenate([even[outside], steps]))


def timeline(report: Report) -> Timeline:
    """The timeline of the report's longest workgroup, replayed again with its events kept."""
    from hk_backend import _emulator

    modelled, group = report.modelled, report.workgroup
    shown = counted(group.time)[0]
    run = run_one(
        report.traced,
        group.trace,
        modelled.charged,
        modelled.resident,
        modelled.active,
        modelled.clock_ghz,
        events_within=(shown.start, shown.end),
    )
    events = _emulator.wave_events(report.traced.trace, run.time)
    slots = np.array([w.slot for w in run.time.workgroups], np.uint32)[events["workgroup"]]
    first = events[(slots == shown.slot) & (events["wave"] == 0) & ~events["waits"]]
    begins = np.sort(first["start"][first["pc"] == report.traced.loop[0]]).tolist()
    tracks = [
        *_wave_tracks(events, slots, modelled.resident),
        *_unit_tracks(_emulator.unit_events(run.time)),
    ]
    return Timeline(
        tracks=sorted(
            tracks, key=lambda each: (each.simd is None, each.simd or 0, not each.is_wave)
        ),
        whole=(shown.start, shown.end),
        loop=(shown.loop_start, shown.loop_end) if shown.loop_end else None,
        close=_close(begins, (shown.start, shown.end)),
        steps=begins,
        place=shown.slot,
        places=modelled.resident,
    )


def _close(begins: Sequence[int], whole: Window) -> Window:
    """Clocks of `STEPS` steps in the middle of the loop; else `CLOSE` clocks in the middle."""
    if len(begins) > STEPS:
        middle = (len(begins) - STEPS) // 2
        return begins[middle], begins[middle + STEPS]
    half = min(CLOSE, whole[1] - whole[0]) // 2
    middle = sum(whole) // 2
    return middle - half, middle + half


def _wave_tracks(events: NDArray[Any], slots: NDArray[np.uint32], resident: int) -> Iterator[Track]:
    """One track for each wave of each slot; workgroups of a slot follow each other in it."""
    from hk_backend import _emulator

    units, stalls = _emulator.unit_names(), _emulator.stall_names()
    places = np.unique(np.stack([events["simd"], slots, events["wave"]], axis=1), axis=0)
    for simd, slot, wave in places.tolist():
        own = events[(slots == slot) & (events["wave"] == wave)]
        spans = {}
        for waits, what in np.unique(np.stack([own["waits"], own["what"]], axis=1), axis=0):
            kind = ("wait", stalls[what]) if waits else ("issue", units[what])
            spans[kind] = _spans(own[(own["waits"] == waits) & (own["what"] == what)])
        label = f"wave {wave}" if resident == 1 else f"{slot + 1}: wave {wave}"
        yield Track(label, simd, True, spans)


def _unit_tracks(events: NDArray[Any]) -> Iterator[Track]:
    from hk_backend import _emulator

    units = _emulator.unit_names()
    for simd in range(4):
        for name in SIMD_UNITS:
            own = events[(events["unit"] == units.index(name)) & (events["simd"] == simd)]
            yield Track(name, simd, False, {("busy", name): _spans(own)})
    for name, label in SHARED_UNITS.items():
        own = events[events["unit"] == units.index(name)]
        yield Track(label, None, False, {("busy", name): _spans(own)})


def _spans(events: NDArray[Any]) -> Spans:
    """Spans of events of one activity; events without a gap between them form one span."""
    events = np.sort(events, order="start")
    starts, ends = events["start"], events["start"] + events["clocks"]
    first = np.ones(len(events), bool)
    first[1:] = starts[1:] > ends[:-1]
    last = np.roll(first, -1)
    return Spans(starts[first].astype(float), (ends[last] - starts[first]).astype(float))
