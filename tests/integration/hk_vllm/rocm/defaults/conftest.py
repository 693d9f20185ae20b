"""What HK's cells run on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hk_backend.devices.hip.emulated import emulated_device
from tests.integration.hk_vllm.rocm import torch_kernels


@pytest.fixture
def emulated(
    small: None, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK's kernels in the emulator, the backends' own in torch."""
    torch_kernels.install(monkeypatch)
    environment(HK_DEVICE="emulated:gfx950")
    emulated_device("gfx950")
