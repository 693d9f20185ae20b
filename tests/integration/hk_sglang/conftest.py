"""Fixtures for tests that need SGLang, on its CPU platform without kernels (cpu_platform/)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.shared.e2e.engine import Engines, Forks, serve

ENVIRONMENT = {"SGLANG_PLATFORM": "hk_cpu", "OMP_NUM_THREADS": "1"}
RUNNER = "tests.integration.hk_sglang.e2e.runner"


@pytest.fixture(scope="session")
def engines(folder: Path) -> Iterator[Engines]:
    """Engines, each started once per session, when the first test reads its answers.

    An engine is a fork of one process, which has imported SGLang and nothing of HK. That process
    starts with the first engine.
    """
    forks = Forks(RUNNER, ENVIRONMENT)
    yield Engines(lambda scenario: serve(forks, scenario, folder, {}, RUNNER), [], folder)
    forks.stop()
