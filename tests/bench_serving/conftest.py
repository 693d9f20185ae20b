"""A plan of a serving measurement, for tests. Whether this machine's AMX works is assumed, not
probed, since a probe takes a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench_serving.candidates import Candidate
from bench_serving.engines import Vllm
from bench_serving.plan import ServingPlan
from hk_backend import machine


@pytest.fixture(autouse=True)
def _amx_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "amx_traps", lambda: False)


def plan(model: Path, *names: str, **changes: Any) -> ServingPlan:
    """A plan for the candidates with these names: 4 prompts of 64 tokens, two rounds."""
    given: dict[str, Any] = {
        "engine": Vllm(), "model": model, "dtype": "float32", "input_lens": [64], "output_len": 4,
        "candidates": [Candidate.parse(name) for name in names or ("stock", "hk")],
        "concurrencies": [1, 2], "prompts": 4, "rounds": 2,
    }  # fmt: skip
    return ServingPlan(**{**given, **changes})
