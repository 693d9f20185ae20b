"""The installed package carries the kernels: a wheel, made without compiling, and the sdist's
list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hk_backend.kernels import arches, catalogue
from hk_backend.kernels.catalogue import CODE_OBJECTS, MEASURING
from hk_backend.kernels.entry import code_object_arch
from hk_backend.lab.toolchain import build

FOLDER = CODE_OBJECTS.relative_to(build.ROOT)
CONFIGURATION = """
[build]
build_base = {folder}/build
build_lib = {folder}/lib
[egg_info]
egg_base = {folder}
[bdist_wheel]
skip_build = 1
bdist_dir = {folder}/bdist
dist_dir = {folder}/dist
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the sdist's list; nothing is written into the repository."""
    folder = tmp_path_factory.mktemp("packages")
    done = setup_py(folder)
    done.check_returncode()
    (folder / "log").write_text(done.stdout + done.stderr)
    return folder


def setup_py(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Makes the wheel and the sdist's list in `folder`."""
    configuration = folder / "setup.cfg"
    configuration.write_text(CONFIGURATION.format(folder=folder))
    return subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_py", "bdist_wheel"],
        cwd=build.ROOT,
        env={**os.environ, "DIST_EXTRA_CONFIG": str(configuration), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def shipped() -> dict[str, bytes]:
    files = [path for path in CODE_OBJECTS.rglob("*") if path.is_file()]
    return {str(path.relative_to(build.ROOT)): path.read_bytes() for path in files}


def test_the_wheel_carries_code_objects_lines_and_indexes(packages: Path, tmp_path: Path) -> None:
    (path,) = packages.glob("dist/*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(f"{FOLDER}/")]
        assert {name: wheel.read(name) for name in names} == shipped()
        wheel.extractall(tmp_path, names)
    for folder in CODE_OBJECTS, MEASURING:
        for arch in arches(folder):
            installed = catalogue(arch, tmp_path / folder.relative_to(build.ROOT)).kernels
            assert [e.name for e in installed] == [e.name for e in catalogue(arch, folder).kernels]
            for entry in installed:
                assert code_object_arch(entry.code_object()) == arch
                assert entry.line_tables()


def test_the_sdist_carries_kernels_and_sources(packages: Path) -> None:
    (manifest,) = packages.glob("*.egg-info/SOURCES.txt")
    names = set(manifest.read_text().splitlines())
    sources = [p for p in (build.ROOT / "csrc").rglob("*") if p.is_file()]
    assert {str(p.relative_to(build.ROOT)) for p in sources} <= names
    assert set(shipped()) <= names


def test_the_sdist_carries_what_make_needs(packages: Path) -> None:
    (manifest,) = packages.glob("*.egg-info/SOURCES.txt")
    names = set(manifest.read_text().splitlines())
    listed = subprocess.run(
        ["git", "ls-files"], cwd=build.ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert set(listed) - names == {".gitattributes", ".gitignore"}


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("HK_NATIVE", "0", "HK_NATIVE=0 is for editable installs"),
        ("HK_ISA_LEVELS", "avx2", "HK_ISA_LEVELS='avx2' is not valid: expected one of all, native"),
    ],
)
def test_no_wheel_without_its_parts(tmp_path: Path, variable: str, value: str, said: str) -> None:
    done = setup_py(tmp_path, **{variable: value})
    assert done.returncode != 0
    assert said in done.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


@pytest.mark.parametrize("folder", [CODE_OBJECTS, MEASURING])
def test_every_file_is_of_a_kernel(folder: Path) -> None:
    for arch in arches(folder):
        indexes = {path: json.loads(path.read_text()) for path in (folder / arch).glob("*.json")}
        listed = {name for index in indexes.values() for name in index["code_objects"]}
        expected = {f"{name}{end}" for name in listed for end in (".co", ".lines")}
        names = {path.name for path in indexes}
        assert {path.name for path in (folder / arch).iterdir()} == names | expected
    others = {MEASURING} if folder == CODE_OBJECTS else set()
    assert set(folder.iterdir()) == {folder / arch for arch in arches(folder)} | others
