"""Fresh interpreters that doctor asks: an import that kills its process must not kill ours."""

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
    """Begin to run `code`, beside others."""
    command = [sys.executable, "-c", code]
    return _pool.submit(subprocess.run, command, capture_output=True, text=True, check=False)


_pool = ThreadPoolExecutor()


def last_line(done: Done) -> str:
    """Of its errors, or what there is to say without any."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it exited with code {done.returncode}"


def answer(done: Done) -> dict[str, str]:
    """The JSON object in the last line of what it printed.

    Raises:
        ValueError: that line is something else, or there is none; one line that says so.
    """
    line = (done.stdout.strip().splitlines() or [""])[-1]
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object in the last line of its output, found {line!r}")
    return found
