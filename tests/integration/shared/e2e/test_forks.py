"""Jobs in forks of one process: each has its own environment, none outlives who asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.shared.e2e.engine import Forks
from tests.models import ROOT

MODULE = __name__
SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
prepared: list[int] = []


def prepare() -> None:
    """Runs once, in the process that forks."""
    prepared.append(os.getpid())


def main(answer: Path) -> None:
    """Runs in each fork."""
    does = os.environ["TEST_DOES"]
    if does == "raises":
        raise RuntimeError("broken on purpose")
    if does == "sleeps":
        worker = subprocess.Popen(SLEEPS)
        answer.write_text(f"{os.getpid()} {worker.pid}")
        worker.wait()
    answer.write_text(f"{does} {prepared} {os.getppid()}")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks(MODULE, {"TEST_DOES": "nothing"})
    yield forks
    forks.stop()


def run(forks: Forks, folder: Path, does: str, timeout: int = 60) -> int:
    return forks.run(MODULE, [folder / does], folder / f"{does}.txt", {"TEST_DOES": does}, timeout)


def all_gone(file: Path) -> None:
    """The processes of a job that sleeps."""
    for process in file.read_text().split():
        stat = Path(f"/proc/{process}/stat")
        eventually(lambda stat=stat: not stat.exists() or ") Z " in stat.read_text())


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def test_each_job_has_its_environment_and_all_have_one_parent(forks: Forks, tmp_path: Path) -> None:
    """A failure is an exit code and a log, and the next job runs."""
    assert [run(forks, tmp_path, does) for does in ("this", "raises", "that")] == [0, 1, 0]
    assert "RuntimeError: broken on purpose" in (tmp_path / "raises.txt").read_text()
    this, that = ((tmp_path / does).read_text().split() for does in ("this", "that"))
    assert (this[0], that[0]) == ("this", "that")
    assert this[1:] == that[1:] == [f"[{this[2]}]", this[2]]


def test_a_job_that_takes_too_long_ends_with_all_it_started(forks: Forks, tmp_path: Path) -> None:
    assert run(forks, tmp_path, "sleeps", timeout=6) == -signal.SIGALRM
    all_gone(tmp_path / "sleeps")


def test_nothing_outlives_a_session_that_was_killed(tmp_path: Path) -> None:
    code = f"import sys; from pathlib import Path; from {__name__} import *; "
    code += "run(Forks(MODULE, {}), Path(sys.argv[1]), 'sleeps')"
    session = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    asked = tmp_path / "sleeps"
    eventually(lambda: asked.exists() and len(asked.read_text().split()) == 2)
    session.kill()
    session.wait()
    all_gone(asked)
