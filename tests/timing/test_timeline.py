"""What the picture shows: every wave's place, without gaps, and steps of the loop."""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend.timing.timeline import STEPS, Spans, Timeline, timeline
from tests.timing.launches import GEMM, MANY, PACKED, report


def shown(kernel: str, shape: str, several: bool = False) -> Timeline:
    return timeline(report(kernel, shape, several))


def test_rows_are_waves_by_simd_then_units() -> None:
    labels = [(row.simd, row.label) for row in shown(PACKED, MANY).rows]
    by_simd = [
        (simd, label)
        for simd in range(4)
        for label in (f"wave {simd}", f"wave {simd + 4}", "matrix", "vector")
    ]
    assert labels == [*by_simd, (None, "LDS"), (None, "memory path")]


def test_with_several_workgroups_each_place_has_its_rows() -> None:
    found = shown(PACKED, MANY, several=True)
    assert found.places == 2
    labels = {row.label for row in found.rows if row.is_wave}
    assert labels == {f"{place}: wave {wave}" for place in (1, 2) for wave in range(8)}


@pytest.mark.parametrize("several", [False, True])
def test_a_wave_does_one_thing_at_a_time(several: bool) -> None:
    found = shown(PACKED, MANY, several)
    for row in found.rows:
        cut = [spans.within(found.whole) for spans in row.spans.values()]
        starts = np.concatenate([spans.starts for spans in cut])
        order = np.argsort(starts)
        ends = (starts + np.concatenate([spans.clocks for spans in cut]))[order]
        assert (starts[order][1:] >= ends[:-1] - (0 if row.is_wave else 1)).all()
        assert sum(spans.total for spans in cut) <= found.whole[1] - found.whole[0]


def test_waves_clocks_are_those_of_the_report() -> None:
    """With one workgroup on a CU they are the same waves."""
    of_report = report(PACKED, MANY).workgroup
    waves = [row for row in shown(PACKED, MANY).rows if row.is_wave]
    for name, clocks in of_report.wave_clocks.stalls.items():
        total = sum(row.spans[("wait", name)].total for row in waves if ("wait", name) in row.spans)
        assert total == pytest.approx(clocks * of_report.waves)


@pytest.mark.parametrize(("kernel", "shape"), [(PACKED, MANY), (GEMM, "m=512,n=512,k=2048")])
def test_steps_of_the_loop_are_shown_closely(kernel: str, shape: str) -> None:
    found = shown(kernel, shape)
    assert found.loop
    assert found.loop[0] <= found.steps[0]
    assert found.steps[-1] < found.loop[1]
    assert len([at for at in found.steps if found.close[0] <= at < found.close[1]]) == STEPS
    assert found.close[0] in found.steps
    assert found.close[1] in found.steps


def test_without_enough_steps_the_middle_is_shown() -> None:
    found = shown(GEMM, "m=256,n=256,k=64")
    assert len(found.steps) <= STEPS
    assert found.whole[0] <= found.close[0] < found.close[1] <= found.whole[1]


def test_stretches_of_the_loop_are_steps() -> None:
    found = shown(GEMM, "m=512,n=512,k=2048")
    edges = found.bins(320)
    assert (np.diff(edges) > 0).all()
    assert (edges[0], edges[-1]) == found.whole
    inside = edges[(edges > found.steps[0]) & (edges < found.steps[-1])]
    assert set(inside) == set(found.steps[1:-1])
    few = found.bins(20)
    used = sorted(set(few) & set(found.steps))
    assert STEPS < len(used) <= 20 < len(found.steps)
    assert few[(few >= used[0]) & (few <= used[-1])].tolist() == used


def test_spans_cut_and_counted() -> None:
    spans = Spans(np.array([0.0, 10, 30]), np.array([5.0, 10, 10]))
    assert spans.total == 25
    cut = spans.within((3, 32))
    assert cut.starts.tolist() == [3, 10, 30]
    assert cut.clocks.tolist() == [2, 10, 2]
    assert spans.by_bin(np.array([0.0, 10, 15, 40])).tolist() == [0.5, 1, 0.6]
    assert Spans(np.array([]), np.array([])).by_bin(np.array([0.0, 1])).tolist() == [0]
