"""What the picture shows: every wave's place, without gaps, and steps of the loop."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.timing.picture import KINDS, draw
from hk_backend.timing.timeline import SHARED_UNITS, SIMD_UNITS, STEPS, Spans, Timeline, timeline
from tests.timing.launches import GEMM, MANY, PACKED, report


def shown(kernel: str, shape: str, several: bool = False) -> Timeline:
    return timeline(report(kernel, shape, several))


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


@pytest.mark.parametrize(("kernel", "shape"), [(PACKED, MANY), (GEMM, "m=512,n=512,k=2048")])
def test_steps_of_the_loop_are_shown_closely(kernel: str, shape: str) -> None:
    found = shown(kernel, shape)
    assert found.loop
    assert found.loop[0] <= found.steps[0]
    assert found.steps[-1] < found.loop[1]
    assert len([at for at in found.steps if found.close[0] <= at < found.close[1]]) == STEPS
    assert found.close[0] in found.steps
    assert found.close[1] in found.steps


def test_spans_cut_and_counted() -> None:
    spans = Spans(np.array([0.0, 10, 30]), np.array([5.0, 10, 10]))
    assert spans.total == 25
    cut = spans.within((3, 32))
    assert cut.starts.tolist() == [3, 10, 30]
    assert cut.clocks.tolist() == [2, 10, 2]
    assert spans.by_bin(np.array([0.0, 10, 15, 40])).tolist() == [0.5, 1, 0.6]
    assert Spans(np.array([]), np.array([])).by_bin(np.array([0.0, 1])).tolist() == [0]


# --- the picture ----------------------------------------------------------------------------------


PNG = b"\x89PNG\r\n\x1a\n"


def texts(svg: Path) -> Counter[str]:
    found = ET.parse(svg).iter("{http://www.w3.org/2000/svg}text")
    return Counter("".join(element.itertext()).strip() for element in found)


def test_rows_axes_legend_and_title(tmp_path: Path) -> None:
    (file,) = draw(report(PACKED, MANY), tmp_path / "cu.svg")
    said = texts(file)
    for label in (*(f"wave {wave}" for wave in range(8)), "LDS", "memory path"):
        assert said[label] >= 2  # both panels
    assert said["matrix"] == said["vector"] == 2 * 4 + 1  # the legend, too
    assert all(said[f"SIMD {simd}"] == 2 for simd in range(4))
    assert all(kind.label in said for kind in KINDS)
    (title,) = (text for text in said if text.startswith(PACKED))
    modelled = report(PACKED, MANY).modelled
    assert "4 requests, heads 64/8, 1024 tokens, causal" in title
    assert f"{modelled.microseconds:,.4g} us" in title
    assert "modelled, error" in title
    assert any(text.startswith("3 steps of its loop") for text in said)
    phases = report(PACKED, MANY).workgroup.phases
    assert phases
    assert any(f"{phases.before:,.0f} clocks before its loop" in text for text in said)


@pytest.mark.parametrize("name", ["cu", "cu.v2"])
def test_another_name_gets_both(tmp_path: Path, name: str) -> None:
    files = draw(report(GEMM, "m=256,n=256,k=64"), tmp_path / name)
    assert [file.name for file in files] == [f"{name}.png", f"{name}.svg"]
    assert files[0].read_bytes().startswith(PNG)
    assert texts(files[1])["wave 0"] == 2


def test_everything_that_a_wave_or_a_unit_does_has_one_colour() -> None:
    drawn = Counter(what for kind in KINDS for what in kind.of)
    expected = {("issue", name) for name in _emulator.unit_names()}
    expected |= {("wait", name) for name in _emulator.stall_names()}
    expected |= {("busy", name) for name in (*SIMD_UNITS, *SHARED_UNITS)}
    assert drawn == Counter(expected)
    assert len({kind.color for kind in KINDS}) == len(KINDS)
