"""The command's last words about the parts that it ran; no test file is in no part."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models import ROOT
from tests.suite import __main__ as command
from tests.suite import parts
from tests.suite.cost import ZEN_4_SPEED
from tests.suite.parts import Part

PASSES = "def test_one(): pass\n"
EVERY_OUTCOME = """
import pytest

def test_passes(): pass
def test_fails(): assert 1 == 2, "not equal"
def test_skips(): pytest.skip("not here")

@pytest.fixture
def broken_end():
    yield
    raise RuntimeError("the end")

def test_breaks_afterwards(broken_end): pass
@pytest.mark.slow
def test_two(): pass
"""
DIES = "import os\ndef test_one(): pass\ndef test_two(): os._exit(3)\n"
Run = Callable[..., tuple[int, list[str]]]


def part(name: str, folder: Path, text: str) -> Part:
    """An engine's part with one test file of its own."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: long\n")
    file = folder / f"test_{name}.py"
    file.write_text(text)
    return Part(name, (str(file), f"--rootdir={folder}", "-p", "no:cacheprovider"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command over parts; returns its exit status and the lines that it prints."""
    monkeypatch.setattr(command, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(command, "emulator_speed", lambda: ZEN_4_SPEED)
    monkeypatch.delenv("PYTEST_ARGS", raising=False)
    monkeypatch.setattr(sys, "argv", ["suite"])

    def found(*of: Part) -> tuple[int, list[str]]:
        monkeypatch.setattr(parts, "ALL", of)
        code = command.main()
        return code, capfd.readouterr().out.splitlines()

    return found


def test_every_part_runs_and_every_failure_is_named(run: Run, tmp_path: Path) -> None:
    code, lines = run(
        part("units", tmp_path, EVERY_OUTCOME),
        part("broken", tmp_path, "import no_such_package"),
        part("dead", tmp_path, DIES),
        part("none", tmp_path, "@__import__('pytest').mark.slow\n" + PASSES),
    )
    summary = lines[next(n for n, line in enumerate(lines) if line.split()[:1] == ["passed"]) + 1 :]
    assert code == 1
    assert [line.split()[:4] for line in summary[:5]] == [
        ["units", "1", "2", "1"],
        ["broken", "0", "2", "0"],
        ["dead", "1", "1", "0"],
        ["none", "0", "1", "0"],
        ["total", "2", "6", "1"],
    ]
    said = "\n".join(summary[5:-1])
    for failure in (
        r"^FAILED units: .*test_units\.py::test_fails - AssertionError: not equal$",
        r"^FAILED units: .*test_units\.py::test_breaks_afterwards - RuntimeError: the end$",
        r"^FAILED broken: .*test_broken\.py - ",
        r"^FAILED dead: \(dead\) - pytest ended amid its session with 3$",
        r"^FAILED none: \(none\) - no test was selected$",
    ):
        assert re.search(failure, said, re.MULTILINE), failure
    assert summary[-1] == "2 passed, 6 failed, 1 skipped"


def test_a_run_above_twice_its_budget_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "emulator_speed", lambda: 1e12 * ZEN_4_SPEED)
    code, lines = run(part("only", tmp_path, PASSES))
    assert (code, lines[-1]) == (1, "1 passed, 0 failed, 0 skipped")
    assert any(line.startswith("FAILED cost: more than 2 budgets: ") for line in lines)


def files(part: Part) -> list[Path]:
    """The test files that a part runs."""
    words = [word for word in part.arguments if "tests" in word]
    ignored = [ROOT / word.removeprefix("--ignore=") for word in words if word.startswith("-")]
    asked = [ROOT / word for word in words if not word.startswith("-")]
    found = [file for path in asked for file in path.rglob("test_*.py")]
    return [file for file in found if not any(file.is_relative_to(path) for path in ignored)]


def test_every_file_is_in_one_part() -> None:
    """Tests of both engines are in two parts, all others in one."""
    found = Counter(file for part in parts.ALL for file in files(part))
    every = (ROOT / "tests").rglob("test_*.py")
    assert found == {file: 1 + file.is_relative_to(ROOT / parts.BOTH) for file in every}
    for part in (*parts.ALL, *parts.HELD):
        named = [word.split("=")[-1] for word in part.arguments if "tests" in word]
        assert named
        assert [path for path in named if not (ROOT / path).exists()] == []
    assert [path for path in parts.QUICK.arguments if not (ROOT / path).exists()] == []
