"""Devices on machines that lack something, or hold it in an unusual place."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from hk_backend.devices.base import DeviceError
from hk_backend.devices.cpu import device
from hk_backend.devices.hip.library import mapped_runtimes


def test_an_extension_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_extension() -> None:
        raise ImportError("undefined symbol: _ZTVN")

    monkeypatch.setattr(device, "usable_isas", no_extension)
    with pytest.raises(DeviceError, match=r"hk_backend\._cpu .*undefined symbol.* reinstall"):
        device.cpu_device.__wrapped__()


def test_a_runtime_in_a_folder_whose_name_has_spaces(tmp_path: Path) -> None:
    library = tmp_path / "two words" / "libamdhip64.so.7"
    library.parent.mkdir()
    library.write_bytes(b"ELF")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert mapped_runtimes() == [str(library)]
