"""One process that has imported an engine, and forks of it that do the work.

    python -m tests.integration.shared.e2e.forks FILE_DESCRIPTOR MODULE

Importing an engine takes longer than starting one: so it is imported once, by `MODULE.prepare()`
and without any plugin, and each engine lives in a fork of this process: nothing of one reaches
another. Jobs come through the connection; the log, the exit code and the processor seconds of each
go back when it has ended. At None, or when the other side is no more, whatever still runs is ended.
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
    """Call `main(*arguments)` of `module` as if it were a process of its own, in `environment`.

    What it writes goes to the file `log`. After `timeout` seconds it is ended.
    """

    module: str
    arguments: list[str]
    log: str
    environment: dict[str, str]
    timeout: int


def main(descriptor: int, module: str) -> None:
    importlib.import_module(module).prepare()
    gc.collect()
    gc.freeze()  # or each engine's collections copy and walk all that was imported here
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
    sys.exit()  # as any script ends: HK's plugin reports then


def ended(descriptor: int, child: int, log: str) -> tuple[int, float]:
    """A child's exit code, negative if a signal ended it, and its processor seconds with those of
    its children; what it left running if it failed ends, too."""
    os.close(descriptor)
    _, status, usage = os.wait4(child, 0)
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code:
        send(child, signal.SIGKILL)
    seconds = usage.ru_utime + usage.ru_stime
    print(f"== {log}: ended with {exit_code}, {seconds:.1f} s of CPU", flush=True)
    return exit_code, seconds


def end(running: dict[int, tuple[int, str]]) -> None:
    """SIGTERM to the whole group of each, SIGKILL if that is not enough."""
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
