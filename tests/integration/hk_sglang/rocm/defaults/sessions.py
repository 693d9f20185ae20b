"""Processes that take themselves for an MI355X's, and hold cells (session.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.integration.hk_sglang.rocm.defaults.settings import SETTINGS
from tests.integration.shared.defaults.cells import Cell
from tests.integration.shared.defaults.table import place
from tests.models import ROOT

OURS = ("HK_", "SGLANG_")
"""Variables that a session does not inherit."""


class Session:
    """One process; `aiter`: its SGLANG_USE_AITER. It starts when it is first asked."""

    def __init__(self, aiter: bool, log: Path) -> None:
        self.aiter, self.log = aiter, log
        self._healthy: dict[Cell, dict[str, Any]] = {}

    def ask(self, cell: Cell, fault: str = "") -> dict[str, Any]:
        """What `session.answer` found; a cell without a fault is held once."""
        if not fault and cell in self._healthy:
            return self._healthy[cell]
        process, _ = self._started
        assert process.stdin
        print(json.dumps([place(cell), fault]), file=process.stdin, flush=True)
        found: dict[str, Any] = self._line(process)
        if not fault:
            self._healthy[cell] = found
        return found

    def linear_layers(self) -> Any:
        """What `session.linear_layers` found."""
        _, found = self._started
        return found

    @cached_property
    def _started(self) -> tuple[subprocess.Popen[str], Any]:
        """The process, and what it says first."""
        environment = {name: of for name, of in os.environ.items() if not name.startswith(OURS)}
        ours = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "integration")]),
            "SGLANG_USE_AITER": str(int(self.aiter)),
            "HK_BACKEND": "attention",
            "HK_DEVICE": "emulated:gfx950",
        }
        with self.log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.hk_sglang.rocm.defaults.session"],
                cwd=ROOT,
                env=environment | ours,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return process, self._line(process)

    def _line(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout
        line = process.stdout.readline()
        assert line, self.log.read_text()[-5000:]
        return json.loads(line)

    def end(self) -> None:
        if "_started" in vars(self):
            self._started[0].communicate()


class Sessions:
    """One for each way to start SGLang that it reads when it is imported."""

    def __init__(self, folder: Path) -> None:
        self._of = {aiter: Session(aiter, folder / f"aiter-{aiter}.log") for aiter in (False, True)}

    def ask(self, cell: Cell, fault: str = "") -> dict[str, Any]:
        return self._of[SETTINGS[cell.setting].aiter].ask(cell, fault)

    def linear_layers(self) -> tuple[dict[str, Any], list[str]]:
        """What `linear_session` found, and the lines of its log."""
        found, log = self._of[False].linear_layers()
        return found, log

    def end(self) -> None:
        for session in self._of.values():
            session.end()


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    """Ends them."""
    found = Sessions(tmp_path_factory.mktemp("mi355x"))
    yield found
    found.end()
