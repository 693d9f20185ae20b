"""`hk-backend bench launch` with vLLM; its figures are nowhere asserted."""

from __future__ import annotations

import json
from pathlib import Path

from hk_backend.bench.launch import linear
from hk_backend.bench.launch.measure import STEPS
from tests.integration.hk_vllm.imported import run_in_fork
from tests.integration.shared.e2e.engine import Forks

COMMAND = """
import sys
from hk_backend.cli.app import app

sys.argv = ["hk-backend", "bench", "launch", "--rounds", "1", "--json"]
app()
"""


def test_json_of_this_environments_engine(forks: Forks, tmp_path: Path) -> None:
    cases = json.loads(run_in_fork(forks, COMMAND, tmp_path))["cases"]
    assert {case["step"] for case in cases} == {*STEPS, *linear.STEPS}
    for case in cases:
        assert case["us_per_layer"] > 0
        assert case["us_empty_operator"] > 0
        assert case["ratio"] == case["us_per_layer"] / case["us_empty_operator"]
        more = case["us_per_layer"] - case["us_empty_operator"]
        assert case["us_more_per_launch"] == more / case["launches_per_layer"]
        assert case["launches_per_layer"] == (2 if "fp8" in case["step"] else 1)
        assert case["error"] == ""
