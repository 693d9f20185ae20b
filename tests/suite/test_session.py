"""All parts run, whatever the others come to; an interrupted run goes on where it stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.models import ROOT
from tests.suite.parts import Part
from tests.suite.results import read
from tests.suite.session import Session, wait


def part(name: str, folder: Path, text: str) -> Part:
    """An engine's part with one test file of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    file = folder / f"test_{name}.py"
    file.write_text(text)
    return Part(name, (str(file), f"--rootdir={folder}", "-p", "no:cacheprovider"))


def test_a_failing_part_hides_no_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parts = [
        part("red", tmp_path / "tests", "def test_one(): assert 0"),
        part("dead", tmp_path / "tests", "import os\ndef test_one(): os._exit(0)"),
        part("green", tmp_path / "tests", "def test_one(): pass"),
    ]
    session = Session(tmp_path / "logs")
    assert session.run(parts)
    found = {part.name: read(part.name, session.logs(part)) for part in parts}
    assert {name: dict(results.counts) for name, results in found.items()} == {
        "red": {"failed": 1},
        "dead": {"failed": 1},
        "green": {"passed": 1},
    }
    assert "red: " in capfd.readouterr().out  # each line says whose it is


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
RUN = """
import pathlib, signal, sys
from tests.suite.parts import Part
from tests.suite.session import Session, wait
for name in (signal.SIGINT, signal.SIGTERM):  # a run in the background may have inherited neither
    signal.signal(name, signal.default_int_handler)
session = Session(pathlib.Path(sys.argv[1]))
sys.exit(0 if session.run([Part("slow", tuple(sys.argv[2:]))]) else 130)
"""


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What passed is not run again, what failed is: the interruption may have been why."""
    ran, repaired, logs = tmp_path / "ran", tmp_path / "repaired", tmp_path / "logs"
    text = SLOW_TESTS.format(ran=str(ran), repaired=str(repaired))
    slow = part("slow", tmp_path / "tests", text)
    command = [sys.executable, "-c", RUN, str(logs), *slow.arguments]
    run = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    while not (ran.exists() and "last" in ran.read_text()):
        assert run.poll() is None
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
    assert run.wait() == 130
    session = Session(logs)
    assert not read("slow", session.logs(slow)).whole
    repaired.touch()
    assert session.run([slow])
    results = read("slow", session.logs(slow))
    assert results.whole
    assert results.counts == {"passed": 3}
    assert ran.read_text().split() == ["first", "red", "last", "red", "last"]


def test_the_environment_and_the_python_of_a_part(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    names = ["PYTHON", "OWN", "ALL"]
    text = (
        "import os, pathlib\ndef test_one():\n"
        f"    text = ' '.join(os.environ[name] for name in {names})\n"
        f"    pathlib.Path({str(seen)!r}).write_text(text)"
    )
    plain = part("plain", tmp_path / "tests", text)
    other = Part("other", plain.arguments, sglang=True, environment={"OWN": "1", "ALL": "part"})
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHON=sglang exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    Session(tmp_path / "logs", str(python), {"ALL": "session"}).run([other])
    assert seen.read_text().split() == ["sglang", "1", "session"]


def test_parts_share_the_budget_of_wave_instructions(tmp_path: Path) -> None:
    """Through one file of the run, whatever the environment says."""
    text = "import os\ndef test(): open(os.environ['HK_TEST_LEDGER'], 'a').write('x')"
    session = Session(tmp_path / "logs", environment={"HK_TEST_LEDGER": "elsewhere"})
    assert session.run([part(name, tmp_path / "tests", text) for name in ("one", "another")])
    assert (tmp_path / "logs" / "wave-instructions").read_text() == "xx"


def test_a_part_s_processor_time_has_its_children_s(tmp_path: Path) -> None:
    """A process that does nothing itself: all is its child's, which has counted for itself."""
    seen = tmp_path / "seen"
    count = (
        "import os, pathlib\n"
        "while (used := sum(os.times()[:2])) < 0.05: pass\n"
        f"pathlib.Path({str(seen)!r}).write_text(str(used))"
    )
    command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, count]
    exit_code, seconds = wait(subprocess.Popen(command, text=True))
    assert exit_code == 0
    assert seconds >= float(seen.read_text())


def test_a_process_that_another_thread_waited_for() -> None:
    process = subprocess.Popen(["sh", "-c", "exit 3"], text=True)
    process.wait()
    assert wait(process) == (3, 0.0)
