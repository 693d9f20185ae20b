"""Engines start when they are first read, once; what is read counts for each case that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.shared.e2e.engine import Engines, Served
from tests.integration.shared.e2e.scenario import Scenario, ScenarioResult
from tests.proof.measured import ENGINES_READ

NAMES = ("first", "second", "third")


@pytest.fixture
def started() -> list[str]:
    return []


@pytest.fixture
def engines(started: list[str], tmp_path: Path) -> Engines:
    def start(scenario: Scenario) -> Served:
        started.append(scenario.name)
        error = "no memory" if scenario.name == "third" else ""
        return Served(ScenarioResult(scenario.name, [], [], error), "the log's end", 1)

    return Engines(start, (Scenario(name, "model", []) for name in NAMES), tmp_path)


def test_each_starts_once_and_only_if_it_is_read(engines: Engines, started: list[str]) -> None:
    assert engines["second"] is engines["second"]
    assert engines.of("second").lines("log") == ["the log's end"]
    assert started == ["second"]


def test_every_case_that_reads_counts(engines: Engines) -> None:
    for _ in range(2):
        ENGINES_READ.clear()
        assert engines["first"].name == "first"
        assert engines["second"].name == "second"
        assert len(ENGINES_READ) == 2


def test_one_that_did_not_start(engines: Engines) -> None:
    assert engines.of("third").error == "no memory"
    with pytest.raises(AssertionError, match="the engine no memory\nthe log's end"):
        engines["third"]
