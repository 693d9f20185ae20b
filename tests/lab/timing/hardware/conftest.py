"""A thread trace of our own making, with the clocks of `made.MEASURED`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.timing.hardware.made import MEASURED, made


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("traces") / "dispatch", MEASURED)
