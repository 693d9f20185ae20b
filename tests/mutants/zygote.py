"""A process that has imported what takes seconds, and forks for each run of pytest.

`python tests/mutants/zygote.py [MODULE ...]` is a script, not a module of the project: nothing of
the project may be imported before the fork, since each run has another tree. Each line of its input
is a job, each line of its output the result.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

import psutil

KNOWN = ("numpy", "torch", "torch.library", "pytest", "hypothesis", "xdist", "pytest_reportlog")
POLL_SECONDS = 0.05
LOOK = 40
"""Polls between two looks at the processor time."""
STILL = 150
"""Looks without any progress, five minutes, after which a run is a deadlock."""


def main() -> None:
    """Read jobs until the input ends."""
    sys.path.pop(0)  # this folder
    for name in (*KNOWN, *sys.argv[1:]):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run pytest with the job's `arguments` in its `folder` and its `environment`, and put what it
    prints into `output`. `code`: pytest's, minus the signal that ended it, None if it had not ended
    after `seconds` of a processor, or stood still. `cpu`: processor seconds, with its children's.
    """
    pid = os.fork()
    if pid == 0:
        child(job)
    process = psutil.Process(pid)
    killed, turns, spent, still = False, 0, 0.0, 0
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            break
        turns += 1
        time.sleep(POLL_SECONDS)
        if turns % LOOK == 0:
            now = processor_seconds(process)
            still = 0 if now > spent else still + 1
            spent = max(spent, now)
            if (spent > job["seconds"] or still > STILL) and not killed:
                killed = True
                os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # processes that the tests have left
    code = None if killed else os.waitstatus_to_exitcode(status)
    return {"code": code, "cpu": used.ru_utime + used.ru_stime}


def processor_seconds(process: psutil.Process) -> float:
    """Processor seconds of a process and all its descendants. Runs are limited by these, since a
    busy machine may stop us for a while."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            total += sum(each.cpu_times()[:4])
    return total


def child(job: dict[str, Any]) -> None:
    """Run pytest in the forked process, and never return."""
    import pytest

    code = 70
    try:
        os.setsid()
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(job["folder"])
        os.environ.update(job["environment"])
        sys.path[:0] = job["environment"]["PYTHONPATH"].split(os.pathsep)
        sys.argv = ["pytest", *job["arguments"]]
        code = int(pytest.main(job["arguments"]))
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
