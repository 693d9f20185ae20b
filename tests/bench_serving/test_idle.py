"""The wait for idle servers, before the next one is timed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bench_serving import idle
from bench_serving.idle import processor_seconds, wait_until_idle

WORKER = "import sys; sys.stdout.write('up'); sys.stdout.flush(); {then}"
SPIN, REST = "exec('while True: pass')", "sys.stdin.read()"
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Starts a server whose worker obeys the test, and returns the server's process id."""
    with ExitStack() as stack:

        def started(then: str) -> int:
            pipe = subprocess.PIPE
            command = [sys.executable, "-c", PARENT, WORKER.format(then=then)]
            process = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe))
            stack.callback(end, process)
            assert process.stdout is not None
            assert process.stdout.read(2) == b"up"
            return process.pid

        yield started


def end(process: subprocess.Popen[bytes]) -> None:
    import psutil

    for each in (*psutil.Process(process.pid).children(recursive=True), process):
        each.kill()


def test_servers_are_waited_for_while_a_worker_works(
    start: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that waits is idle, and so is one that has ended."""
    resting, spinning = start(REST), start(SPIN)
    assert not wait_until_idle([resting, spinning], most=1.0)
    assert processor_seconds([spinning]) > 0
    assert wait_until_idle([resting], most=60.0)
    monkeypatch.setattr(idle, "WINDOW_SECONDS", 0.01)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert processor_seconds([gone.pid]) == 0
    assert wait_until_idle([gone.pid])
