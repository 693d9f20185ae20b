"""Machines that the tests of commands share."""

from __future__ import annotations

import pytest

from hk_backend import machine
from hk_backend.cli import doctor, installation
from hk_backend.devices.cpu.isas import LIMITS
from tests.cli.machines import (
    UNSET,
    VERSIONS,
    installed,
    our_package,
    plugins_installed,
    python_says,
)


@pytest.fixture
def healthy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HK_BACKEND", "1")
    installed(monkeypatch, **VERSIONS)
    python_says(monkeypatch)
    monkeypatch.setattr(machine, "amx_traps", lambda: False)
    monkeypatch.setattr(doctor, "find_library", lambda name: "libnuma.so.1")
    for module in (doctor, installation):
        monkeypatch.setattr(module, "find_spec", lambda name: object())
    our_package(monkeypatch)
    plugins_installed(monkeypatch, "hk_vllm", "hk_sglang")


@pytest.fixture
def not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable limits the instruction sets, also where the suite is held to some."""
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
