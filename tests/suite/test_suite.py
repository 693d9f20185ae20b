"""What the command runs, what it says at its end, and where an interrupted run goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.models import ROOT
from tests.suite import __main__ as command
from tests.suite import parts
from tests.suite.cost import ZEN_4_SPEED
from tests.suite.parts import Part
from tests.suite.results import WHY, read
from tests.suite.session import Session

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
OVER = """
import os
def pytest_sessionfinish(session): session.exitstatus = int(os.environ["CODE"])
"""
Run = Callable[..., tuple[int, list[str]]]


def part(name: str, folder: Path, text: str, *arguments: str) -> Part:
    """An engine's part with one test file of its own."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: long\n")
    file = folder / f"test_{name}.py"
    file.write_text(text)
    return Part(name, (str(file), f"--rootdir={folder}", "-p", "no:cacheprovider", *arguments))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command over one part, whose tests are two and one of them slow, or over others;
    returns its exit status and the lines that it prints. Logs lie in tmp_path / "logs"."""
    only = part("only", tmp_path, f"import pytest\n{PASSES}@pytest.mark.slow\ndef test_2(): pass")
    monkeypatch.setattr(parts, "ALL", (only,))
    monkeypatch.setattr(command, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(command, "SLOW_ROW", tmp_path / "logs" / "slow-run.md")
    monkeypatch.setattr(command, "emulator_speed", lambda: ZEN_4_SPEED)
    monkeypatch.delenv("PYTEST_ARGS", raising=False)

    def found(*arguments: str, of: Sequence[Part] = ()) -> tuple[int, list[str]]:
        monkeypatch.setattr(parts, "ALL", of or parts.ALL)
        monkeypatch.setattr(sys, "argv", ["suite", *arguments])
        capfd.readouterr()
        code = command.main()
        return code, capfd.readouterr().out.splitlines()

    return found


def test_every_part_runs_and_every_failure_is_named(run: Run, tmp_path: Path) -> None:
    code, lines = run(
        of=(
            part("units", tmp_path, EVERY_OUTCOME),
            part("broken", tmp_path, "import no_such_package"),
            part("dead", tmp_path, DIES),
            part("worker", tmp_path, DIES, "-n", "1"),
            part("none", tmp_path, "@__import__('pytest').mark.slow\n" + PASSES),
            part("green", tmp_path, PASSES),
        )
    )
    summary = lines[next(n for n, line in enumerate(lines) if line.split()[:1] == ["passed"]) + 1 :]
    assert code == 1
    assert [line.split()[:4] for line in summary[:7]] == [
        ["units", "1", "2", "1"],
        ["broken", "0", "2", "0"],
        ["dead", "1", "1", "0"],
        ["worker", "1", "1", "0"],
        ["none", "0", "1", "0"],
        ["green", "1", "0", "0"],
        ["total", "4", "7", "1"],
    ]
    said = "\n".join(summary[7:-1])
    for failure in (
        r"^FAILED units: .*test_units\.py::test_fails - AssertionError: not equal$",
        r"^FAILED units: .*test_units\.py::test_breaks_afterwards - RuntimeError: the end$",
        r"^FAILED broken: .*test_broken\.py - ",
        r"^FAILED dead: \(dead\) - pytest ended amid its session with 3$",
        r"^FAILED worker: .*test_worker\.py::test_two - .*crashed",
        r"^FAILED none: \(none\) - no test was selected$",
    ):
        assert re.search(failure, said, re.MULTILINE), failure
    assert summary[-1] == "4 passed, 7 failed, 1 skipped"
    assert any(line.startswith("dead: ") for line in lines)  # each line says whose it is


def test_a_part_over_a_budget_says_so(run: Run, tmp_path: Path) -> None:
    """Although each of its tests passed."""
    (tmp_path / "conftest.py").write_text(OVER)
    codes = [code for code in WHY if code > pytest.ExitCode.NO_TESTS_COLLECTED]
    green = part("green", tmp_path, PASSES)
    of = [replace(green, name=f"p{code}", environment={"CODE": str(code)}) for code in codes]
    code, lines = run(of=of)
    assert code == 1
    assert all(f"FAILED p{code}: (p{code}) - {WHY[code]}" in lines for code in codes)
    assert lines[-1] == f"{len(codes)} passed, {len(codes)} failed, 0 skipped"


def test_what_pytest_is_told_replaces_the_parts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    red = part("red", tmp_path, "def test_one(): assert 0\ndef test_two(): pass")
    monkeypatch.setenv("PYTEST_ARGS", f"{' '.join(red.arguments)} -k 'one or three'")
    code, lines = run()
    assert (code, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_a_whole_slow_run_leaves_its_row_and_nothing_to_resume(run: Run, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / "slow-another-tree").mkdir(parents=True)
    code, lines = run("--slow")
    assert (code, lines[-1]) == (0, "2 passed, 0 failed, 0 skipped")
    assert list(logs.glob("slow-*/")) == []
    (row,) = (logs / "slow-run.md").read_text().splitlines()
    assert row in lines
    cells = r"\w+\+? \| \d{4}-\d\d-\d\d \| .+, \d+ cores \| \w+ \| 2 \| 0 \| 0 \| \d+"
    assert re.fullmatch(rf"\| {cells} \|", row)


def test_a_hold_of_a_processor(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample runs where the processor has more than AVX2; what it lacks is refused."""
    monkeypatch.setattr(parts, "HELD", parts.ALL)
    monkeypatch.setattr(command, "problem", lambda isa: "" if isa == "avx2" else f"no {isa}")
    for native, ran in (("avx2", False), ("avx512", True)):
        monkeypatch.setattr(command, "native_isa", lambda native=native: native)
        assert run("--held")[0] == 0
        assert (tmp_path / "logs" / "last").exists() == ran
    with pytest.raises(SystemExit, match="no avx512"):
        run("--isa", "avx512")


def test_a_run_above_twice_its_budget_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the whole of `make test` is judged, by the slower of two measurements."""
    fast = 1e12 * ZEN_4_SPEED
    speeds = iter((fast, ZEN_4_SPEED))
    monkeypatch.setattr(command, "emulator_speed", speeds.__next__)
    assert run()[0] == 0
    monkeypatch.setattr(command, "emulator_speed", lambda: fast)
    code, lines = run()
    assert (code, lines[-1]) == (1, "1 passed, 0 failed, 0 skipped")
    assert any(line.startswith("FAILED cost: more than 2 budgets: ") for line in lines)
    assert run("--slow")[0] == 0
    monkeypatch.setenv("PYTEST_ARGS", " ".join(parts.ALL[0].arguments))
    assert run()[0] == 0


SLOW_TESTS = """
import os, pathlib, time
def test_first():
    with open({ran!r}, "a") as file: file.write("first ")
def test_red():
    with open({ran!r}, "a") as file: file.write("red ")
    assert pathlib.Path({repaired!r}).exists()
def test_last():
    with open({ran!r}, "a") as file: file.write("last ")
    if not pathlib.Path({repaired!r}).exists(): time.sleep(120)
"""
INTERRUPTIBLE = """
import pathlib, signal, sys
from tests.suite.parts import Part
from tests.suite.session import Session
for name in (signal.SIGINT, signal.SIGTERM):  # a run in the background may have inherited neither
    signal.signal(name, signal.default_int_handler)
session = Session(pathlib.Path(sys.argv[1]))
sys.exit(0 if session.run([Part("slow", tuple(sys.argv[2:]))]) else 130)
"""


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What passed is not run again, what failed is: the interruption may have been why. A process
    that was killed may leave half a line."""
    ran, repaired, logs = tmp_path / "ran", tmp_path / "repaired", tmp_path / "logs"
    slow = part("slow", tmp_path, SLOW_TESTS.format(ran=str(ran), repaired=str(repaired)))
    command = [sys.executable, "-c", INTERRUPTIBLE, str(logs), *slow.arguments]
    running = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    while not (ran.exists() and "last" in ran.read_text()):
        assert running.poll() is None
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
    assert running.wait() == 130
    session = Session(logs)
    assert read("slow", session.logs(slow)).counts == {"passed": 1, "failed": 2}  # slow itself too
    with session.logs(slow)[0].open("a") as log:
        log.write('{"$report_type": "TestRep')
    repaired.touch()
    for _ in range(2):  # the second finds nothing left
        assert session.run([slow])
        assert read("slow", session.logs(slow)).counts == {"passed": 3}
    assert ran.read_text().split() == ["first", "red", "last", "red", "last"]


def test_what_a_part_is_given(tmp_path: Path) -> None:
    """Its Python, its variables under the session's, and the files that parts share, whatever the
    environment says. Its processor time has its children's."""
    seen, ledger = tmp_path / "seen", tmp_path / "logs" / "wave-instructions"
    count = "import os\nwhile (used := sum(os.times()[:2])) < 0.05: pass\nprint(used)"
    text = (
        "import os, pathlib, subprocess, sys\ndef test_one():\n"
        "    values = [os.environ[name] for name in ('PYTHON', 'OWN', 'ALL', 'HK_TEST_LEDGER')]\n"
        f"    count = [sys.executable, '-c', {count!r}]\n"
        "    values.append(subprocess.check_output(count, text=True))\n"
        f"    pathlib.Path({str(seen)!r}).write_text(' '.join(values))"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHON=sglang exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment = {"OWN": "1", "ALL": "part", "HK_TEST_LEDGER": "elsewhere"}
    given = replace(part("p", tmp_path, text), sglang=True, environment=environment)
    session = Session(tmp_path / "logs", str(python), {"ALL": "session"})
    assert session.run([given])
    *values, used = seen.read_text().split()
    assert values == ["sglang", "1", "session", str(ledger)]
    assert read("p", session.logs(given)).core_minutes * 60 > float(used)


def test_any_change_that_git_would_take_makes_another_tree(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.email=a@b", "-c", "user.name=a")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True)

    kept = tmp_path / "kept"
    git("init", "-q")
    (tmp_path / ".gitignore").write_text("*.o\n")
    kept.write_text("one")
    git("add", "-A")
    git("commit", "-qm", ".")
    clean = command.tested(tmp_path)
    assert not clean[0].endswith("+")
    (tmp_path / "built.o").write_text("ignored")
    assert command.tested(tmp_path) == clean
    (tmp_path / "new").write_text("two")
    found = [clean, command.tested(tmp_path)]
    kept.write_text("two")
    found.append(command.tested(tmp_path))
    kept.unlink()
    found.append(command.tested(tmp_path))
    assert [commit.endswith("+") for commit, _ in found] == [False, True, True, True]
    git("add", "-A")
    git("commit", "-qm", ".")
    found.append(command.tested(tmp_path))
    assert not found[-1][0].endswith("+")
    assert len(set(found)) == len(found)


def files(part: Part) -> list[Path]:
    """The test files that a part runs."""
    words = [word for word in part.arguments if "tests" in word]
    ignored = [ROOT / word.removeprefix("--ignore=") for word in words if word.startswith("-")]
    asked = [ROOT / word for word in words if not word.startswith("-")]
    found = [file for path in asked for file in path.rglob("test_*.py")]
    return [file for file in found if not any(file.is_relative_to(path) for path in ignored)]


def test_every_file_is_in_one_part() -> None:
    """But tests of both engines, which are in two."""
    found = Counter(file for part in parts.ALL for file in files(part))
    every = (ROOT / "tests").rglob("test_*.py")
    assert found == {file: 1 + file.is_relative_to(ROOT / parts.BOTH) for file in every}
    for part in (*parts.ALL, *parts.HELD, parts.QUICK):
        named = [word.split("=")[-1] for word in part.arguments if "tests" in word]
        assert named
        assert [path for path in named if not (ROOT / path).exists()] == []


def test_only_tests_without_engines_share_the_cores() -> None:
    assert "-n" in parts.UNITS_PART.command(sys.executable)
    assert "-n" not in parts.VLLM_PART.command(sys.executable)
