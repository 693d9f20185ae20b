"""Tests that need SGLang, on its CPU platform without its kernel package (cpu_platform/)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.shared.e2e.engine import Engines, Forks, serve

ENVIRONMENT = {"SGLANG_PLATFORM": "hk_cpu", "OMP_NUM_THREADS": "1"}
RUNNER = "tests.integration.hk_sglang.e2e.runner"


@pytest.fixture(scope="session")
def engines(folder: Path) -> Iterator[Engines]:
    """Each started when the first test reads what it answers, and once per session: a fork of a
    process that has imported SGLang and nothing of HK, which starts with the first."""
    forks = Forks(RUNNER, ENVIRONMENT)
    yield Engines(lambda scenario: serve(forks, scenario, folder, {}, RUNNER), [], folder)
    forks.stop()
