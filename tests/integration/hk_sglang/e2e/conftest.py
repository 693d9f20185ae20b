"""Engines: all that the session's tests read, each once, two at a time from the first that asks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.hk_sglang.e2e.singles import SINGLES
from tests.integration.shared.e2e.engine import Checkpoint, Forks, Reader, serve
from tests.integration.shared.e2e.scenario import Scenario

ENVIRONMENT = {"SGLANG_PLATFORM": "hk_cpu", "OMP_NUM_THREADS": "1"}
RUNNER = "tests.integration.hk_sglang.e2e.runner"


@pytest.fixture(scope="session")
def served(
    request: pytest.FixtureRequest, checkpoint: Checkpoint, folder: Path
) -> Iterator[Reader]:
    """What an engine answered; waits for it. All that the session needs start now."""
    forks = Forks(RUNNER, ENVIRONMENT)
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = {
            scenario.name: pool.submit(serve, forks, scenario, folder, {}, RUNNER)
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
