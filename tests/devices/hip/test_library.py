"""Which HIP library is used: the one that the process has mapped, never one by its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import library
from hk_backend.devices.hip.emulated import LIBRARY
from tests.models import ROOT


@pytest.fixture(scope="module")
def decoy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for LD_LIBRARY_PATH with a libamdhip64 that leaves a note when it is opened."""
    folder = tmp_path_factory.mktemp("decoy")
    source = folder / "decoy.cpp"
    note = folder / "opened"
    source.write_text(
        "#include <cstdio>\n"
        f'__attribute__((constructor)) static void open() {{ std::fopen("{note}", "w"); }}\n'
    )
    for name in ("libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7"):
        subprocess.run(
            ["c++", "-shared", "-fPIC", str(source), "-o", str(folder / name)], check=True
        )
    return folder


def run(*mapped: Path, path: Path | None = None) -> dict[str, Any]:
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    if path is not None:
        environment["LD_LIBRARY_PATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.devices.hip.process", *map(str, mapped)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def emulated_as(path: Path) -> Path:
    """The emulated library under a name of ROCm's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(LIBRARY, path)
    return path


def test_the_decoy_would_be_opened_by_name(decoy: Path) -> None:
    """The control: a process that opens libamdhip64.so by name gets the decoy."""
    command = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libamdhip64.so')"]
    environment = dict(os.environ, LD_LIBRARY_PATH=str(decoy))
    subprocess.run(command, env=environment, check=True)
    note = decoy / "opened"
    assert note.exists()
    note.unlink()


def test_without_a_mapped_one_there_is_none(decoy: Path) -> None:
    result = run(path=decoy)
    assert result["used"] is None
    assert "no HIP runtime (libamdhip64) is mapped" in result["error"]
    assert not (decoy / "opened").exists()


@pytest.mark.parametrize("name", ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64-0a1b2c3d.so"])
def test_the_mapped_one_is_used(name: str, decoy: Path, tmp_path: Path) -> None:
    path = emulated_as(tmp_path / "rocm" / name)
    result = run(path, path=decoy)
    assert result["used"] == str(path)
    assert result["error"] == ""
    assert not (decoy / "opened").exists()
    assert [loaded for loaded in result["mapped"] if "amdhip64" in loaded] == [str(path)]


def test_two_mapped_ones_are_refused(tmp_path: Path) -> None:
    paths = [emulated_as(tmp_path / folder / "libamdhip64.so") for folder in ("one", "two")]
    result = run(*paths)
    assert result["used"] is None
    for path in paths:
        assert str(path) in result["error"]


def test_of_two_mapped_ones_torchs_own_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / folder / "libamdhip64.so") for folder in ("system", "torch/lib")]
    opened = []
    monkeypatch.setattr(library, "mapped_paths", lambda: ["/lib/libc.so.6", *paths])
    monkeypatch.setattr(library, "torch_folder", lambda: tmp_path / "torch")
    monkeypatch.setattr(library, "HipLibrary", lambda path, mode: opened.append((path, mode)))
    library.mapped_library()
    assert opened == [(paths[1], os.RTLD_NOLOAD | os.RTLD_NOW)]


def test_one_that_is_too_old(decoy: Path) -> None:
    """The decoy has no function at all."""
    result = run(decoy / "libamdhip64.so")
    assert result["used"] is None
    assert "libamdhip64.so has no hip" in result["error"]
    assert "ROCm 6 or newer is needed" in result["error"]
    (decoy / "opened").unlink()


def test_one_whose_file_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mapped under a path where nothing lies any more: not a reason to load another."""
    gone = str(tmp_path / "libamdhip64.so")
    monkeypatch.setattr(library, "mapped_paths", lambda: [gone])
    with pytest.raises(DeviceError, match="the mapped HIP runtime cannot be used"):
        library.mapped_library()


@pytest.mark.parametrize("name", ["libamdhip64.so.debug", "libhk_emulated_hip.so", "amdhip64.so"])
def test_other_libraries_are_not_taken_for_it(name: str) -> None:
    assert not library.NAME.fullmatch(name)
