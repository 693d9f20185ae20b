"""Starts vLLM engines (tests/integration/shared/e2e/engine.py)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.integration.shared.e2e import engine
from tests.integration.shared.e2e.engine import Engines, Forks, Served
from tests.integration.shared.e2e.scenario import Scenario

ENVIRONMENT = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # the runner sends functions to the workers
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
EAGER = {"TORCHDYNAMO_DISABLE": "1"}  # else vLLM's sampler compiles a helper for 15 s
COMPILED = {"TORCHDYNAMO_DISABLE": "0"}
SPAWNED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}

RUNNER = "tests.integration.hk_vllm.e2e.runner"
CACHE = tempfile.TemporaryDirectory(prefix="vllm-cache-")
"""A folder for caches, empty when the session begins. vLLM looks into a model's class only once."""
MEASURED = {"HK_EVIDENCE": "measure", "HK_CACHE_DIR": CACHE.name}
"""This machine's times decide who computes a layer."""
FORKS = Forks(RUNNER, ENVIRONMENT | EAGER | {"VLLM_CACHE_ROOT": CACHE.name})


def serve(
    scenarios: Iterable[Scenario],
    folder: Path,
    environment: dict[str, str],
    forks: Forks = FORKS,
    runner: str = "",
) -> Engines:
    """Engines of `scenarios`, each in a process that starts when its answers are first read.

    Args:
        forks: the process that has imported vLLM.
        runner: the module that serves a scenario, if it is not the one of `forks`.
    """

    def start(scenario: Scenario) -> Served:
        return engine.serve(forks, scenario, folder, environment, runner or forks.module)

    return Engines(start, scenarios, folder)
