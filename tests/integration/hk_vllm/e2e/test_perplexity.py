"""Checkpoints of `hk-backend quantize` predict a text nearly as well as the original, SmolLM2.

vLLM's server computes the perplexities. The text is Newton's Opticks, from apache-tvm-ffi, which
vLLM requires. Its first 16,384 tokens serve for calibration, and 20,480 of the others are measured.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import files
from pathlib import Path

import pytest

from bench_serving.candidates import Candidate
from bench_serving.engines import Vllm
from bench_serving.perplexity import PerplexityPlan, PerplexityResult, measure
from hk_backend.quantize.job import Job
from hk_backend.quantize.settings import Settings
from tests.models import smollm2

pytestmark = pytest.mark.slow
OPTICKS = "Isaac.Newton-Opticks.txt"
GOALS = {
    "mxfp4": (Settings("mxfp4", method="gptq"), 1.7),
    "mxfp4-weights": (Settings("mxfp4", method="gptq", activations="none"), 1.25),
    "mxfp6": (Settings("mxfp6_e2m3", method="gptq", rotation=64), 1.03),
    "mxfp8": (Settings("mxfp8", method="gptq", rotation=64), 1.03),
    "fp8": (Settings("fp8", method="gptq"), 1.015),
}
"""Each format by gptq, and the factor that it may put on the original's perplexity."""


def opticks() -> Path:
    [found] = [file for file in files("apache-tvm-ffi") or () if file.name == OPTICKS]
    return Path(str(found.locate()))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PerplexityResult]:
    """Results of the perplexity measurement, by the checkpoint's name."""
    folder, text, original = tmp_path_factory.mktemp("perplexity"), opticks(), smollm2()
    for name, (settings, _) in GOALS.items():
        Job(original, folder / name, replace(settings, calibration=text)).run()
    models = [original, *(folder / name for name in GOALS)]
    plan = PerplexityPlan(Vllm(), models, [Candidate.parse("hk")], "bfloat16", text, 20_000, 20_480)
    return {row.model: row for row in measure(plan, folder / "measured", print)}


@pytest.mark.parametrize("name", GOALS)
def test_goals(name: str, rows: dict[str, PerplexityResult]) -> None:
    assert rows[name].ratio <= GOALS[name][1]
