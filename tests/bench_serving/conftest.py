"""No test here depends on what this machine's AMX does; finding out takes a process of its own."""

from __future__ import annotations

import pytest

from hk_backend import machine


@pytest.fixture(autouse=True)
def _amx_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "amx_traps", lambda: False)
