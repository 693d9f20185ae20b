"""Processes that take themselves for an MI355X's and check cells (defaults/session.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pytest

from tests.integration.hk_sglang.rocm.defaults.settings import SETTINGS
from tests.integration.shared.defaults.cells import Cell
from tests.integration.shared.defaults.table import place
from tests.models import ROOT

OURS = ("HK_", "SGLANG_")
"""Prefixes of variables that a session does not inherit."""


class Session:
    """One process, started when its answers are first read; `aiter`: its SGLANG_USE_AITER."""

    def __init__(self, aiter: bool, cells: Sequence[Cell]) -> None:
        self._aiter = aiter
        self._cells = [cell for cell in cells if SETTINGS[cell.setting].aiter is aiter]

    @cached_property
    def answers(self) -> tuple[Any, dict[Cell, dict[str, Any]]]:
        """The findings of `linear_session`, and the answer of `session.answer` for each cell."""
        environment = {name: of for name, of in os.environ.items() if not name.startswith(OURS)}
        ours = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "integration")]),
            "SGLANG_USE_AITER": str(int(self._aiter)),
            "HK_BACKEND": "attention",
            "HK_DEVICE": "emulated:gfx950",
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.hk_sglang.rocm.defaults.session"],
            cwd=ROOT,
            env=environment | ours,
            input=json.dumps([place(cell) for cell in self._cells]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        linear, found = json.loads(done.stdout)
        return linear, dict(zip(self._cells, found, strict=True))


class Sessions:
    """Two sessions, one for each value of SGLANG_USE_AITER, which SGLang reads at its import."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._of = {aiter: Session(aiter, cells) for aiter in (False, True)}

    def ask(self, cell: Cell) -> dict[str, Any]:
        return self._of[SETTINGS[cell.setting].aiter].answers[1][cell]

    def linear_layers(self) -> tuple[dict[str, Any], list[str]]:
        """The findings of `linear_session`, and the lines of its log."""
        found, log = self._of[False].answers[0]
        return found, log


@pytest.fixture(scope="session")
def sessions(request: pytest.FixtureRequest) -> Sessions:
    """Sessions with the cells of the tests that run."""
    calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    return Sessions([call.params["cell"] for call in calls if "cell" in call.params])
