"""The Chrome trace of a timeline: the format's documented fields, and the timeline's clocks."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from hk_backend.lab.timing.chrome_trace import write
from hk_backend.lab.timing.timeline import timeline
from tests.lab.timing.launches import GEMM, report

TOP = {"traceEvents", "displayTimeUnit", "systemTraceEvents", "otherData", "stackFrames", "samples"}
METADATA = {
    "process_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}
"""Arguments of metadata events. These fields are those of the "Trace Event Format" document."""
COMPLETE = {"name": str, "cat": str, "ph": str, "ts": float, "dur": float, "pid": int, "tid": int}


def test_a_timeline_in_the_chrome_trace_event_format(tmp_path: Path) -> None:
    found = report(GEMM, "m=512,n=512,k=2048")
    shown = timeline(found)
    write(found, shown, tmp_path / "cu.json")
    trace = json.loads((tmp_path / "cu.json").read_text())
    assert trace.keys() <= TOP
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named: dict[tuple[int, int], set[str]] = {}
    stretches: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        thread = event["pid"], event["tid"]
        if event["ph"] == "M":
            about = {key: type(value) for key, value in event["args"].items()}
            assert about == METADATA[event["name"]]
            named.setdefault(thread, set()).add(event["name"])
        else:
            assert event["ph"] == "X"
            assert {key: type(event[key]) for key in COMPLETE} == COMPLETE
            stretches.setdefault(thread, []).append(event)
    assert stretches.keys() <= named.keys()
    assert all(each == METADATA.keys() for each in named.values())

    per_clock = 1e-3 / found.modelled.clock_ghz
    length = (shown.whole[1] - shown.whole[0]) * per_clock
    for (_, number), events in stretches.items():
        events.sort(key=lambda event: event["ts"])
        ends = 0.0
        for event in events:  # viewers want events of a thread side by side or within each other
            assert event["ts"] >= ends - 1e-9, event
            ends = event["ts"] + event["dur"]
        assert events[0]["ts"] >= 0
        assert ends <= length + 1e-9
        by_name = groupby(sorted(events, key=lambda event: event["name"]), lambda e: e["name"])
        taken = {name: sum(event["dur"] for event in each) for name, each in by_name}
        spans = shown.tracks[number].spans
        clocks = {key: own.within(shown.whole).total for key, own in spans.items()}
        expected = {
            f"{kind}: {what}": own * per_clock for (kind, what), own in clocks.items() if own
        }
        assert taken == pytest.approx(expected)
