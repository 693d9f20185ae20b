"""The engines that a test names, by its parameters or by the marker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hk_sglang.e2e.catalogue import single
from tests.integration.shared.e2e.engine import Checkpoint, Engines, Reader
from tests.integration.shared.e2e.scenario import Scenario


@pytest.fixture
def served(
    request: pytest.FixtureRequest, engines: Engines, checkpoint: Checkpoint, folder: Path
) -> Reader:
    """Start an engine of this test, if no other has, and return what it left behind."""
    engines.add(needed(request.node, checkpoint, folder))
    return engines.of


def needed(test: pytest.Item, checkpoint: Checkpoint, folder: Path) -> list[Scenario]:
    """The scenarios of a test: of parameters that have `scenarios`, and of the marker."""
    found: list[Scenario] = []
    callspec = getattr(test, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        if hasattr(value, "scenarios"):
            found += value.scenarios(checkpoint, folder)
    for marker in test.iter_markers("engine"):
        found += [single(name, checkpoint) for name in marker.args]
    return found
