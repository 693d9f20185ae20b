"""Engines: all that the session's tests read, started when the first of them asks, each once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.engine import Served, process, tail
from tests.e2e.scenario import Scenario, ScenarioResult, load, save
from tests.models import smollm2, tiny_llama
from tests.sglang.e2e.singles import SINGLES

Checkpoint = Callable[[str], str]
"""From a model of the catalogue to its checkpoint."""
Reader = Callable[[str], Served]
"""From a scenario's name to what its engine answered."""

ENVIRONMENT = {"SGLANG_PLATFORM": "hk_cpu", "OMP_NUM_THREADS": "1"}
TIMEOUT = 1800


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
def served(request: pytest.FixtureRequest, checkpoint: Checkpoint, folder: Path) -> Reader:
    """What an engine answered."""
    scenarios = needed(request.session.items, checkpoint, folder)
    asked = folder / "asked.json"
    save(scenarios, asked)
    command = [sys.executable, "-m", "tests.sglang.e2e.runner", str(asked), str(folder)]
    with process(command, folder / "runner.txt", ENVIRONMENT) as runner:
        runner.wait(TIMEOUT)
    assert runner.returncode == 0, tail((folder / "runner.txt").read_text())
    return lambda name: read(folder, name)


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


def read(folder: Path, name: str) -> Served:
    """What the engine of the scenario `name` left behind."""
    answered, log = folder / f"{name}.json", folder / f"{name}.txt"
    results = load(ScenarioResult, answered) if answered.exists() else []
    return Served({item.name: item for item in results}, log.read_text(), 0 if results else 1)
