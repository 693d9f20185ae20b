"""`hk-backend bench launch`: what it prints; its figures are nowhere asserted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hk_backend.bench.launch import linear
from hk_backend.bench.launch.measure import STEPS, Launches, Row
from hk_backend.bench.launch.table import print_rows


def test_json_of_this_environments_engine() -> None:
    command = [sys.executable, "-m", "hk_backend.cli.app", "bench", "launch", "--rounds", "1"]
    run = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    cases = json.loads(run.stdout)["cases"]
    assert {case["step"] for case in cases} == {*STEPS, *linear.STEPS}
    for case in cases:
        assert case["us_per_layer"] > 0
        assert case["us_empty_operator"] > 0
        assert case["ratio"] == case["us_per_layer"] / case["us_empty_operator"]
        more = case["us_per_layer"] - case["us_empty_operator"]
        assert case["us_more_per_launch"] == more / case["launches_per_layer"]
        assert case["launches_per_layer"] == (2 if "fp8" in case["step"] else 1)
        assert case["error"] == ""


def test_an_engine_that_cannot_be_measured_is_a_row() -> None:
    rows = list(Launches(("none_such",), 1).run(lambda line: None))
    of_engine = [row for row in rows if row.engine == "none_such"]
    assert len(of_engine) == len(STEPS)
    assert all("hk_none_such" in row.error for row in of_engine)
    assert len(rows) == len(STEPS) + len(linear.STEPS)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    print_rows(Console(width=120), [Row("vllm", "prefill", 3.0, 6.0), Row("vllm", "m", error="x")])
    printed = capsys.readouterr().out
    for text in ("vllm", "prefill", "3.00", "6.00", "0.50", "-3.00", "x"):
        assert text in printed
