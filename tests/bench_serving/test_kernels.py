"""`python -m bench_serving kernels`: files per operator, also of what failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_serving.__main__ import app
from bench_serving.kernels import OPERATORS, Plan, measure
from hk_backend.bench import settings
from hk_backend.bench.attention.measure import Case as AttentionCase
from hk_backend.bench.attention.sweep import Sweep as AttentionSweep
from hk_backend.bench.linear.measure import Case as LinearCase
from hk_backend.bench.linear.sweep import Sweep as LinearSweep

TINY = LinearCase("tiny", 40, 64, 128)
PLANS: dict[str, Plan] = {
    "attention": AttentionSweep([AttentionCase(48, 4, 2, 64, "fp32")], ["packed"], 1),
    "linear": LinearSweep([TINY], ["bf16", "mxfp4"], True, 1),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_writes_its_numbers_a_table_and_plots(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MATMUL_SIZE", 16)
    told: list[str] = []
    rows = measure(OPERATORS[name], PLANS[name], tmp_path, told.append)
    assert [row.error for row in rows] == [""] * len(rows)
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert len(report["cases"]) == len(rows)
    assert report["environment"]["rounds"] == 1
    lines = (tmp_path / f"{name}.md").read_text().splitlines()
    assert sum(line.startswith("|") for line in lines) == len(rows) + 2
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    svg = (tmp_path / f"{name}.svg").read_text()
    assert "<svg" in svg
    for key in ("cpu", "device", "torch"):
        assert str(report["environment"][key]) in svg
    assert "medians of 1 rounds" in svg
    assert told


@pytest.mark.parametrize("command", [["kernels"], ["serve", "--model", "."]])
def test_without_the_extra_for_plots(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's environment has none: one line that says what to install, before any work."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("plots: ")
    assert "-m pip install 'matplotlib" in line
