"""Devices chosen as a user would, and threads put back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.devices.cpu import attention
from hk_backend.devices.cpu.isas import usable_isas

ISAS = ("portable", "avx2", "avx512", "avx512_bf16", "amx")
"""From slow to fast; the last one that this machine has is what every other test runs on."""


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the test once per instruction set."""
    if request.param not in usable_isas():
        pytest.skip(f"this processor has no {request.param}")
    with _on(f"cpu:{request.param}", monkeypatch):
        yield request.param


@pytest.fixture
def on_gfx950(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the emulated GPU."""
    with _on("emulated:gfx950", monkeypatch):
        yield


@contextmanager
def _on(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With HK_DEVICE."""
    monkeypatch.setenv("HK_DEVICE", device)
    get_config.cache_clear()
    yield
    monkeypatch.undo()
    get_config.cache_clear()


@pytest.fixture
def tiny_splits(monkeypatch: pytest.MonkeyPatch, threads: None) -> None:
    """Keys split over more threads than there are cores, and as finely as a plan can."""
    monkeypatch.setattr(attention, "SPLIT_ELEMENTS", 1)
    torch.set_num_threads(6)


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores torch's thread count after a test that changes it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
