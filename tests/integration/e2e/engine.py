"""Starts processes of vLLM engines (tests/e2e/engine.py)."""

from __future__ import annotations

from pathlib import Path

from tests.e2e import engine
from tests.e2e.engine import Served
from tests.e2e.scenario import Scenario

ENVIRONMENT = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # the runner sends functions to the workers
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
EAGER = {"TORCHDYNAMO_DISABLE": "1"}  # or vLLM's sampler compiles a helper for 15 s
SPAWNED = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


def serve(
    scenarios: list[Scenario],
    folder: Path,
    environment: dict[str, str],
    *,
    eager: bool = True,
    timeout: float = 900,
    runner: str = "tests.integration.e2e.runner",
) -> Served:
    """Run `scenarios` in one process of vLLM engines."""
    own = ENVIRONMENT | {"VLLM_CACHE_ROOT": str(folder / "cache")} | (EAGER if eager else {})
    return engine.serve(scenarios, folder, own | environment, runner, timeout)
