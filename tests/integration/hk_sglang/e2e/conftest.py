"""Engines: all that the session's tests read, each once, two at a time from the first that asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.hk_sglang.e2e.singles import SINGLES
from tests.integration.shared.e2e.engine import Forks, Served, serve
from tests.integration.shared.e2e.scenario import Scenario
from tests.models import smollm2, tiny_llama

Checkpoint = Callable[[str], str]
"""From a model of the catalogue to its checkpoint."""
Reader = Callable[[str], Served]
"""From a scenario's name to what its engine answered."""

ENVIRONMENT = {"SGLANG_PLATFORM": "hk_cpu", "OMP_NUM_THREADS": "1"}
RUNNER = "tests.integration.hk_sglang.e2e.runner"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engine(*names): what a test reads of singles.py")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this session's models, results and logs lie."""
    return tmp_path_factory.mktemp("e2e")


@pytest.fixture(scope="session")
def checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint of a model of the catalogue, made on first use."""

    def checkpoint(model: str) -> str:
        if model == "smollm2":
            return str(smollm2())
        return str(tiny_llama(folder / "models", int(model.removeprefix("tiny-"))))

    return checkpoint


@pytest.fixture(scope="session")
def served(
    request: pytest.FixtureRequest, checkpoint: Checkpoint, folder: Path
) -> Iterator[Reader]:
    """What an engine answered; waits for it. All that the session needs start now."""
    forks = Forks(RUNNER, ENVIRONMENT)
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = {
            scenario.name: pool.submit(serve, forks, [scenario], folder, {}, RUNNER)
            for scenario in needed(request.session.items, checkpoint, folder)
        }
        yield lambda name: running[name].result()
        pool.shutdown(wait=False, cancel_futures=True)
        forks.stop()


def needed(items: list[pytest.Item], checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
    """The scenarios of all selected tests, each once, in their order: of parameters that have
    `scenarios`, and of the marker."""
    scenarios: dict[str, Scenario] = {}
    for item in items:
        found = []
        callspec = getattr(item, "callspec", None)
        for value in callspec.params.values() if callspec else ():
            if hasattr(value, "scenarios"):
                found += value.scenarios(checkpoint, folder)
        for marker in item.iter_markers("engine"):
            found += [SINGLES[name].scenario(name, checkpoint) for name in marker.args]
        scenarios |= {scenario.name: scenario for scenario in found}
    return list(scenarios.values())
