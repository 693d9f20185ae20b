"""A process that has measured nothing, on a fake clock, with a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hk_backend.config import get_config
from hk_backend.engine.evidence import deciding
from hk_backend.engine.evidence.stopwatch import HostStopwatch
from tests.engine.evidence.standins import FakeClock


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of measurements."""
    monkeypatch.setenv("HK_CACHE_DIR", str(tmp_path / "kept"))
    restart(monkeypatch)
    return tmp_path / "kept"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock by which everything is timed."""
    fake = FakeClock()
    monkeypatch.setattr(deciding, "stopwatch_for", lambda *kind: HostStopwatch(fake, running=fake))
    return fake


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process knows, as a second start does."""
    monkeypatch.setattr(deciding, "process", deciding.Process())
    get_config.cache_clear()
