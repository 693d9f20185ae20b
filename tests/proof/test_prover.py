"""The controller of `make prove`: it records checks that passed, and forgets failed ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import Progress

from tests.proof import records
from tests.proof.plugin import PROPERTY
from tests.proof.prover import Prover
from tests.proof.records import Key

CASE = {
    "check": "test_it::test_it", "subject": "k" * 16, "test": "t" * 16, "runtime": "e" * 16,
    "source": "gemm", "name": "a_kernel", "of": 2, "ran": 3, "worst": 0.5, "seconds": 1.0,
}  # fmt: skip
KEY = Key("test_it::test_it", "k" * 16)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(records.write, "__defaults__", (tmp_path,))
    return tmp_path


def run(*outcomes: bool) -> None:
    prover = Prover(Progress(disable=True), {KEY: 1.0}, 2)
    said = {"when": "call", "nodeid": "test_it", "user_properties": [(PROPERTY, CASE)]}
    for passed in outcomes:
        report: Any = SimpleNamespace(passed=passed, failed=not passed, **said)
        prover.pytest_runtest_logreport(report)


@pytest.mark.parametrize("outcomes", [(True, False), (False, True), (False, False)])
def test_a_record_is_of_all_cases(folder: Path, outcomes: tuple[bool, bool]) -> None:
    """And a check that fails loses its record."""
    run(True)
    assert records.read(folder) == {}
    run(True, True)
    (record,) = records.read(folder).values()
    assert (record.key, record.cases, record.seconds) == (KEY, 6, 2.0)
    run(*outcomes)
    assert records.read(folder) == {}
