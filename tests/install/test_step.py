"""`requirements/step`: one line for a step; what its command prints goes into a log."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

from tests.models import ROOT

STEP = ROOT / "requirements" / "step"


def step(log: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [STEP, "a title", str(log), "what to do", "bash", "-c", script]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_step_is_one_line_with_its_time(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "step.log"
    done = step(log, "echo out; echo err >&2", STEP_SECONDS="3600")  # and it ends at once
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(r"a title +0:\d\d\n", done.stderr)
    assert log.read_text() == "out\nerr\n"


def test_an_error_shows_the_end_of_the_log_and_names_it(tmp_path: Path) -> None:
    log = tmp_path / "step.log"
    done = step(log, "seq 100; exit 3")
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"a title +0:\d\d  failed", lines[0])
    assert lines[1:-2] == [f"    {number}" for number in range(86, 101)]
    assert lines[-2:] == ["what to do", f"The whole log: {log}"]


def test_a_pipe_gets_a_sign_of_life_with_ninja_s_count(tmp_path: Path) -> None:
    """The command ends when it sees the line."""
    log, said = tmp_path / "step.log", tmp_path / "said"
    script = f"echo '[12/96] c++ x.cpp'; until grep -q 'still running' {said}; do :; done"
    with said.open("w") as sink:
        code = subprocess.run(
            [STEP, "a title", str(log), "", "bash", "-c", script],
            env={**os.environ, "STEP_SECONDS": "0.05"},
            stderr=sink,
            timeout=60,
            check=False,
        ).returncode
    assert code == 0
    assert re.match(r"a title +0:\d\d  still running, \[12/96\]\n", said.read_text())


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    """The bar moves on one line. The command ends when a file tells it."""
    log, go = tmp_path / "step.log", tmp_path / "go"
    ours, theirs = pty.openpty()
    script = f"echo '[48/96] c++ x.cpp'; until [ -e {go} ]; do :; done"
    process = subprocess.Popen([STEP, "a title", str(log), "", "bash", "-c", script], stderr=theirs)
    os.close(theirs)
    shown = ""
    while "48 of 96" not in shown:
        shown += os.read(ours, 1024).decode()
    go.touch()
    while not shown.endswith("\n"):
        shown += os.read(ours, 1024).decode()
    assert process.wait() == 0
    os.close(ours)
    assert "[##########          ] 48 of 96" in shown
    assert re.search(r"\r\x1b\[Ka title +0:\d\d\r?\n$", shown)
    assert shown.count("\n") == 1
