"""Starts of whole engines in `make test`: counted where they happen, red above a bound.

A process that starts an engine notes it in the file that TEST_ENGINE_STARTS names, whoever started
the process. Parts of one engine share the file, and with it the bound: the part that exceeds it is
red. Other runs of pytest count in a file of their own, and have no bound.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

VARIABLE = "TEST_ENGINE_STARTS"
MOST = 6
"""Starts of each engine in `make test`."""
TOO_MANY = 8
"""How pytest ends then if no test failed (tests/budget.py, tests/proof/plugin.py have others)."""


def note_start(engine: str) -> None:
    """A whole engine starts here; `engine` says which, in one line."""
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a") as file:
            file.write(f"{engine}\n")


def forget() -> None:
    """Stop noting starts."""
    os.environ.pop(VARIABLE, None)


class Starts:
    """The plugin's hooks. `bounded`: more starts than `MOST` are red."""

    def __init__(self, config: pytest.Config, *, bounded: bool) -> None:
        self._bounded = bounded
        if VARIABLE not in os.environ:  # workers of pytest-xdist inherit it
            folder = TemporaryDirectory(prefix="engine-starts-")
            os.environ[VARIABLE] = str(Path(folder.name) / "starts")
            config.add_cleanup(folder.cleanup)
            config.add_cleanup(forget)

    @property
    def started(self) -> list[str]:
        path = Path(os.environ.get(VARIABLE, ""))
        return path.read_text().splitlines() if path.is_file() else []

    @property
    def too_many(self) -> bool:
        return self._bounded and len(self.started) > MOST

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.too_many and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = TOO_MANY

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not (started := self.started):
            return
        terminalreporter.section("starts of whole engines")
        for engine, count in sorted(Counter(started).items()):
            terminalreporter.write_line(f"{count:4}  {engine}")
        limit = f" of {MOST}" if self._bounded else ""
        verdict = ": TOO MANY" if self.too_many else ""
        terminalreporter.write_line(f"{len(started):4}  in all{limit}{verdict}", red=self.too_many)
