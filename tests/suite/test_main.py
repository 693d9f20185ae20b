"""What the command runs, and what it says at its end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.suite import __main__ as command
from tests.suite import parts
from tests.suite.cost import ZEN_4_SPEED
from tests.suite.parts import Part

PASSES = "def test_one(): pass"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite of one part, one of whose tests is slow; its report logs lie in the folder."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: long\n")
    file = tmp_path / "test_it.py"
    file.write_text(f"import pytest\n{PASSES}\n@pytest.mark.slow\ndef test_two(): pass\n")
    only = Part("only", (str(file), f"--rootdir={tmp_path}", "-p", "no:cacheprovider"))
    monkeypatch.setattr(parts, "ALL", (only,))
    monkeypatch.setattr(command, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(command, "SLOW_ROW", tmp_path / "logs" / "slow-run.md")
    monkeypatch.setattr(command, "emulator_speed", lambda: ZEN_4_SPEED)
    monkeypatch.setattr(command.tree, "digest", lambda: "this-tree")
    monkeypatch.delenv("PYTEST_ARGS", raising=False)
    return tmp_path / "logs"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["suite", *arguments])
    return command.main()


def test_a_run_leaves_the_slow_ones_out(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_what_pytest_is_told_replaces_the_parts(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    red = logs.parent / "test_red.py"
    red.write_text("def test_one(): assert 0\ndef test_two(): pass")
    monkeypatch.setenv("PYTEST_ARGS", f"{red} -k 'one or three' --rootdir={logs.parent}")
    assert run(monkeypatch) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_whole_slow_run_leaves_its_row_and_nothing_to_resume(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = logs / "slow-another-tree"
    other.mkdir(parents=True)
    assert run(monkeypatch, "--slow") == 0
    row = (logs / "slow-run.md").read_text()
    assert re.fullmatch(
        r"\| \w+\+? \| \d{4}-\d\d-\d\d \| .+, \d+ cores \| \w+ \| 2 \| 0 \| 0 \| \d+ \|\n", row
    )
    assert row in capsys.readouterr().out
    assert list(logs.glob("slow-*/")) == []


def test_an_instruction_set_that_the_processor_lacks(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "problem", lambda isa: f"no {isa}")
    with pytest.raises(SystemExit, match="no avx512"):
        run(monkeypatch, "--isa", "avx512")


@pytest.mark.parametrize(("native", "runs"), [("avx2", False), ("avx512", True)])
def test_the_held_sample_runs_where_the_processor_has_more(
    logs: Path, monkeypatch: pytest.MonkeyPatch, native: str, runs: bool
) -> None:
    monkeypatch.setattr(parts, "HELD", parts.ALL)
    monkeypatch.setattr(command, "native_isa", lambda: native)
    monkeypatch.setattr(command, "problem", lambda isa: "" if isa == "avx2" else "another")
    assert run(monkeypatch, "--held") == 0
    assert (logs / "last").exists() == runs


def test_a_run_above_twice_its_budget_fails(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the whole of `make test` is judged."""
    monkeypatch.setattr(command, "emulator_speed", lambda: 1e12 * ZEN_4_SPEED)
    assert run(monkeypatch) == 1
    out = capsys.readouterr().out.splitlines()
    assert any(line.startswith("FAILED cost: more than 2 budgets: ") for line in out)
    assert out[-1] == "1 passed, 0 failed, 0 skipped"
    speeds = iter((1e12 * ZEN_4_SPEED, ZEN_4_SPEED))  # slower at the end than it began
    monkeypatch.setattr(command, "emulator_speed", speeds.__next__)
    assert run(monkeypatch) == 0
    monkeypatch.setattr(command, "emulator_speed", lambda: 1e12 * ZEN_4_SPEED)
    assert run(monkeypatch, "--slow") == 0
    monkeypatch.setenv("PYTEST_ARGS", str(logs.parent / "test_it.py") + f" --rootdir={logs.parent}")
    assert run(monkeypatch) == 0
    assert "FAILED cost" not in capsys.readouterr().out
