"""`requirements/step`: one line for a step; what its command prints goes into a log."""

from __future__ import annotations

import os
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
