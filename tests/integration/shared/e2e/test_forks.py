"""Jobs in forks of one process: each has its own environment, none outlives who asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
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


def sleeping(file: Path) -> list[int]:
    """The processes of a job that sleeps, once they run."""
    eventually(lambda: file.exists() and len(file.read_text().split()) == 2)
    return [int(word) for word in file.read_text().split()]


def gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def test_each_job_has_its_environment_and_all_have_one_parent(forks: Forks, tmp_path: Path) -> None:
    assert [run(forks, tmp_path, does) for does in ("this", "that")] == [0, 0]
    this, that = ((tmp_path / does).read_text().split() for does in ("this", "that"))
    assert (this[0], that[0]) == ("this", "that")
    assert this[1:] == that[1:] == [f"[{this[2]}]", this[2]]


def test_a_failure_is_an_exit_code_and_a_log_and_the_next_job_runs(
    forks: Forks, tmp_path: Path
) -> None:
    assert run(forks, tmp_path, "raises") == 1
    assert "RuntimeError: broken on purpose" in (tmp_path / "raises.txt").read_text()
    assert run(forks, tmp_path, "that") == 0


def test_a_job_that_takes_too_long_ends_with_all_it_started(forks: Forks, tmp_path: Path) -> None:
    assert run(forks, tmp_path, "sleeps", timeout=6) == -signal.SIGALRM
    eventually(lambda: all(map(gone, sleeping(tmp_path / "sleeps"))))


def test_stop_ends_what_runs_and_tells_who_waits(tmp_path: Path) -> None:
    forks = Forks(MODULE, {})
    told: list[str] = []

    def wait() -> None:
        try:
            run(forks, tmp_path, "sleeps")
        except RuntimeError as error:
            told.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    processes = sleeping(tmp_path / "sleeps")
    forks.stop()
    waiting.join(60)
    assert all(gone(process) for process in processes)
    assert "no more forks" in told[0]


def test_nothing_outlives_a_session_that_was_killed(tmp_path: Path) -> None:
    code = f"import sys; from pathlib import Path; from {__name__} import *; "
    code += "run(Forks(MODULE, {}), Path(sys.argv[1]), 'sleeps')"
    session = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    processes = sleeping(tmp_path / "sleeps")
    session.kill()
    session.wait()
    eventually(lambda: all(map(gone, processes)))
