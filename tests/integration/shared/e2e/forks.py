"""One process that has imported an engine, and forks of it that do the work.

    python -m tests.integration.shared.e2e.forks FILE_DESCRIPTOR MODULE

Importing an engine takes longer than starting one, so `MODULE.prepare()` imports it once, without
any plugin. Each engine lives in a fork of this process, so that nothing of one reaches another.
Jobs come through the connection. When a job has ended, its log, exit code and processor seconds go
back. At None, or when the other side is gone, whatever still runs is ended.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

SECONDS_TO_END = 20


class Job(NamedTuple):
    """A call of `main(*arguments)` of `module`, as a process of its own, in `environment`.

    Its output goes to the file `log`. After `timeout` seconds it is ended.
    """

    module: str
    arguments: list[str]
    log: str
    environment: dict[str, str]
    timeout: int


def main(descriptor: int, module: str) -> None:
    importlib.import_module(module).prepare()
    gc.collect()
    gc.freeze()  # else each engine's collections copy and walk all imported objects
    running: dict[int, tuple[int, str]] = {}
    with Connection(descriptor) as connection:
        while True:
            for ready in wait([connection, *running]):
                if ready is not connection:
                    assert isinstance(ready, int)
                    child, log = running.pop(ready)
                    connection.send((log, *ended(ready, child, log)))
                    continue
                job = received(connection)
                if job is None:
                    return end(running)
                child = fork(job, connection)
                running[os.pidfd_open(child)] = child, job.log


def received(connection: Any) -> Job | None:
    try:
        message = connection.recv()
    except EOFError:
        return None
    return message and Job(*message)


def fork(job: Job, connection: Any) -> int:
    """Do `job` in a child; its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    connection.close()
    os.setsid()
    with Path(job.log).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    signal.alarm(job.timeout)
    os.environ.clear()
    os.environ.update(job.environment)
    importlib.import_module(job.module).main(*map(Path, job.arguments))
    sys.exit()  # ends like any script: HK's plugin reports then


def ended(descriptor: int, child: int, log: str) -> tuple[int, float]:
    """A child's exit code, negative if a signal ended it, and its processor seconds.

    The seconds include its children's. If it failed, what it left running is ended too.
    """
    os.close(descriptor)
    _, status, usage = os.wait4(child, 0)
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code:
        send(child, signal.SIGKILL)
    seconds = usage.ru_utime + usage.ru_stime
    print(f"== {log}: ended with {exit_code}, {seconds:.1f} s of CPU", flush=True)
    return exit_code, seconds


def end(running: dict[int, tuple[int, str]]) -> None:
    """Send SIGTERM to the whole group of each, and SIGKILL if that is not enough."""
    for child, _ in running.values():
        send(child, signal.SIGTERM)
    while running:
        over = wait(list(running), SECONDS_TO_END)
        if not over:
            break
        for descriptor in over:
            assert isinstance(descriptor, int)
            ended(descriptor, *running.pop(descriptor))
    for child, _ in running.values():
        send(child, signal.SIGKILL)


def send(child: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child, what)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
