"""Runs doctor's code in fresh interpreters: an import that crashes must not end doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

Done = subprocess.CompletedProcess[str]


def run(code: str) -> Done:
    """Run `code`, once per process; another caller waits for the same run."""
    return start(code).result()


@cache
def start(code: str) -> Future[Done]:
    """Start to run `code` in the background."""
    command = [sys.executable, "-c", code]
    return _pool.submit(subprocess.run, command, capture_output=True, text=True, check=False)


_pool = ThreadPoolExecutor()


def last_line(done: Done) -> str:
    """The last line of a run's standard error, or else its exit code in words."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it exited with code {done.returncode}"


def answer(done: Done) -> dict[str, str]:
    """The JSON object in the last line of a run's standard output.

    Raises:
        ValueError: the output is empty, or its last line is something else.
    """
    line = (done.stdout.strip().splitlines() or [""])[-1]
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object in the last line of its output, found {line!r}")
    return found
