"""Writes the timeline of one CU in the Chrome trace event format, for Perfetto and chrome://tracing.

Each SIMD is a process of the trace, and one more is what the whole CU shares; waves and units are
their threads. Stretches of clocks are complete events (phase X), in microseconds of the modelled
clock from the workgroup's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hk_backend.lab.timing.calibration import statement
from hk_backend.lab.timing.report import Report
from hk_backend.lab.timing.timeline import Timeline, Track, Window

Event = dict[str, Any]
SHARED = 4
"""Process of the units that the SIMDs share, behind the four SIMDs."""


def write(report: Report, shown: Timeline, path: Path) -> None:
    """Write the trace as JSON. Raises `OSError`."""
    path.write_text(json.dumps(trace_of(report, shown), separators=(",", ":")) + "\n")


def trace_of(report: Report, shown: Timeline) -> dict[str, Any]:
    """The trace as plain data."""
    entry, modelled = report.workload.entry, report.modelled
    per_clock = 1 / (float(modelled.clock_ghz) * 1e3)
    events: list[Event] = []
    for number, track in enumerate(shown.tracks):
        events += _names(track, number)
        events += _stretches(track, number, shown.whole, per_clock)
    about = {
        "kernel": entry.name,
        "arch": modelled.arch,
        "shape": report.workload.text,
        "clock_ghz": float(modelled.clock_ghz),
        "source": statement(entry.operator),
    }
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _names(track: Track, number: int) -> Iterator[Event]:
    """Metadata events (phase M): what viewers call the process and the thread, and their order."""
    simd = _process(track)
    named = {
        "process_name": {"name": "all SIMDs" if simd == SHARED else f"SIMD {simd}"},
        "process_sort_index": {"sort_index": simd},
        "thread_name": {"name": track.label},
        "thread_sort_index": {"sort_index": number},
    }
    for name, about in named.items():
        yield {"name": name, "ph": "M", "pid": simd, "tid": number, "args": about}


def _stretches(track: Track, number: int, window: Window, per_clock: float) -> Iterator[Event]:
    for (kind, what), spans in track.spans.items():
        cut = spans.within(window)
        for start, clocks in zip(cut.starts - window[0], cut.clocks, strict=True):
            yield {
                "name": f"{kind}: {what}",
                "cat": kind,
                "ph": "X",
                "ts": float(start * per_clock),
                "dur": float(clocks * per_clock),
                "pid": _process(track),
                "tid": number,
                "args": {"clock": int(start), "clocks": int(clocks)},
            }


def _process(track: Track) -> int:
    return SHARED if track.simd is None else track.simd
