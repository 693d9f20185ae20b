"""Costs of instructions, extracted from a trace that was made with known ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hk_backend.lab.timing import measured
from hk_backend.lab.timing.hardware.dispatch import Line, read
from hk_backend.lab.timing.hardware.extraction import extracted, issue_row
from tests.lab.timing.hardware.made import ARCH, MEASURED, TURNS


def test_what_the_trace_was_made_with_is_found(folder: Path, tmp_path: Path) -> None:
    found = extracted([("made", read(folder))], ARCH)
    parameters = found.parameters
    assert "scalar_latency" not in parameters, "four samples are too few"
    assert found.rows["scalar load, latency"].median == MEASURED["scalar_latency"]
    assert {name: parameters[name] for name in MEASURED if name != "scalar_latency"} == {
        name: value for name, value in MEASURED.items() if name != "scalar_latency"
    }
    assert found.rows["ds_write_b128, issue"].count == 4 * TURNS
    found.save(tmp_path / "traces.json")
    assert measured.read(tmp_path / "traces.json", ARCH) == parameters
    kept = json.loads((tmp_path / "traces.json").read_text())
    assert kept["sources"] == ["made"]
    assert kept["rows"]["branch, taken"]["count"] == 4 * (TURNS - 1)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("v_exp_f32_e32 v1, v1", "transcendental, issue"),
        ("v_permlane32_swap_b32_e32 v1, v2", "swap, issue"),
        ("v_mul_lo_u32 v1, v2, v3", "wide vector, issue"),
        ("v_mul_f32_e32 v1, v2, v3", "vector, issue"),
        ("v_mfma_f32_32x32x16_bf16 v[0:15], v[0:3], v[0:3], 0", "matrix, issue"),
        ("s_cbranch_scc1 65516", "branch, taken"),
        ("s_mov_b32 s0, s1", ""),
    ],
)
def test_the_row_of_an_instruction(text: str, row: str) -> None:
    assert issue_row(Line(text, 0, ""), taken=True) == row
