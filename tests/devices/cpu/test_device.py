"""The cpu device on a machine that lacks something."""

from __future__ import annotations

import pytest

from hk_backend.devices.base import DeviceError
from hk_backend.devices.cpu import device


def test_an_extension_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_extension() -> None:
        raise ImportError("undefined symbol: _ZTVN")

    monkeypatch.setattr(device, "usable_isas", no_extension)
    with pytest.raises(DeviceError, match=r"hk_backend\._cpu .*undefined symbol.* reinstall"):
        device.cpu_device.__wrapped__()
