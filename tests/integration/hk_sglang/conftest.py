"""Tests that need SGLang, on its CPU platform without its kernel package (cpu_platform/)."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.fresh import fresh
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.shared.e2e.engine import Engines, Forks, serve
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear_checkpoints import Checkpoint

os.environ.setdefault("SGLANG_PLATFORM", "hk_cpu")  # SGLang reads it when it is imported

ENVIRONMENT = {"SGLANG_PLATFORM": "hk_cpu", "OMP_NUM_THREADS": "1"}
RUNNER = "tests.integration.hk_sglang.e2e.runner"


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A process that has imported SGLang and nothing of HK; it starts with the first job."""
    found = Forks(RUNNER, ENVIRONMENT)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def engines(forks: Forks, folder: Path) -> Engines:
    """Each started when the first test reads what it answers, and once per session."""
    return Engines(lambda scenario: serve(forks, scenario, folder, {}, RUNNER), [], folder)


@pytest.fixture
def format_elsewhere(forks: Forks, tmp_path: Path) -> Callable[[bytes], str]:
    """The same as for all engines, in a process that has imported SGLang."""
    return lambda stored: str(fresh(forks, tmp_path, format_of, stored.hex()))


def format_of(stored: str) -> str:
    """The format of a configuration whose pickle has these hexadecimal digits."""
    return str(pickle.loads(bytes.fromhex(stored)).options.format)


@pytest.fixture(scope="session")
def engine() -> LinearEngine:
    """What the shared tests of the linear route ask."""
    return linear_layers


@pytest.fixture(params=CHECKPOINTS)
def any_checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    """Each checkpoint that the engine reads, in turn."""
    return CHECKPOINTS[request.param]
