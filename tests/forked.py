"""Programs that run in processes of their own, which begin with torch and the operators imported.

Importing these takes a second. One process of each worker does it, and every program runs in a
fork of that process (tests/integration/shared/e2e/forks.py).
"""

from __future__ import annotations

import importlib
import itertools
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

MODULES = ("torch", "hk_backend.ops", "hk_backend.devices", "tests.ops.oracle")


@dataclass(frozen=True)
class Done:
    """The end of a program: its exit code, negative for a signal, its output, and its log."""

    exit_code: int
    printed: str
    log: str


class Programs:
    """Starts programs. Their files lie in `folder`; `environment` is on top of this process's."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        from tests.integration.shared.e2e.engine import Forks

        self._folder = folder
        self._forks = Forks(__name__, environment or {}, base=lambda: dict(os.environ))
        self._numbers = itertools.count()

    def run(self, program: str | Path, *words: str, **environment: str) -> Done:
        """Run a program, a file or its text, to its end. `words` are its sys.argv[1:]."""
        number = next(self._numbers)
        printed, log = (self._folder / f"{number}.{end}" for end in ("printed", "log"))
        if isinstance(program, str):
            text, program = program, self._folder / f"{number}.py"
            program.write_text(text)
        printed.touch()
        exit_code = self._forks.run(
            __name__, [program, printed, *map(Path, words)], log, environment
        )
        return Done(exit_code, printed.read_text(), log.read_text())

    def check(self, program: str | Path, *words: str, **environment: str) -> str:
        """Return what the program prints. Raises `AssertionError` with its log if it fails."""
        done = self.run(program, *words, **environment)
        assert done.exit_code == 0, f"ended with {done.exit_code}: {done.log[-2000:]}"
        return done.printed

    def stop(self) -> None:
        """Wait for the process that has imported everything, so that its time is counted."""
        self._forks.stop()


@contextmanager
def programs(folder: Path, **environment: str) -> Iterator[Programs]:
    """`Programs` while the block runs."""
    found = Programs(folder, environment)
    yield found
    found.stop()


def prepare() -> None:
    """Import `MODULES`, in the process that is forked."""
    for module in MODULES:
        importlib.import_module(module)


def main(program: Path, printed: Path, *words: Path) -> None:
    """Run the program in a fork as if it were the only one."""
    sys.argv = [str(program), *map(str, words)]
    with printed.open("w") as sink, redirect_stdout(sink):
        runpy.run_path(str(program), run_name="__main__")
