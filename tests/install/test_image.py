"""Installed as users install: the Dockerfile's steps build a wheel and install it into a fresh
environment, which then serves with no compiler and no checkout."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hk_backend.kernels import arches, catalogue
from tests.install.image import DEVICES, Image, build, inherited
from tests.install.pythons import OTHERS, builds
from tests.models import ROOT
from tests.processes import finished

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build(tmp_path_factory.mktemp("image"), sys.executable)


@pytest.mark.parametrize("device", DEVICES)
def test_it_serves_with_no_compiler(image: Image, device: str) -> None:
    assert image.serve(device).keys() >= {"attention", "linear"}


@pytest.mark.parametrize(
    ("operator", "right", "wrong"),
    [
        ("attention", "(q, k, v, query", "(q, k.flip(0), v, query"),
        ("linear", "linear(x, ", "linear(x.flip(0), "),
    ],
)
def test_a_wrong_result_would_be_seen(image: Image, operator: str, right: str, wrong: str) -> None:
    """The script fails with rows of another token: this is its control."""
    text = (image.base / "serve.py").read_text()
    assert text.count(right) == 1
    (image.base / "spoilt.py").write_text(text.replace(right, wrong))
    done = image.run("python", "spoilt.py", HK_DEVICE="cpu")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)[operator]["error"] > 1


def test_the_wheel(image: Image) -> None:
    """The tag names this machine's C library or an older one. The wheel brings no foreign library:
    a grafted OpenMP runtime would be a second one beside torch's. It was built from the source
    distribution beside it (that nothing else is missing: tests/kernels/test_package.py)."""
    tag = re.search(r"-manylinux_(\d+)_(\d+)_(\w+)\.whl$", image.wheel.name)
    assert tag is not None, image.wheel.name
    here = tuple(map(int, platform.libc_ver()[1].split(".")))
    assert (int(tag[1]), int(tag[2])) <= here
    assert tag[3] == platform.machine()
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert image.tag.startswith(f"{python}-{python}-")
    names = zipfile.ZipFile(image.wheel).namelist()
    libraries = {
        Path(name).name.partition(".")[0] for name in names if ".so" in Path(name).suffixes
    }
    assert libraries == {"_cpu", "_emulator", "_hip", "libhk_emulated_hip"}
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"hk_backend", "hk_sglang", "hk_vllm", "hk_backend-0.1.0.dist-info"}
    (sdist,) = image.folder.glob("dist/*.tar.gz")
    assert sdist.name == f"{image.wheel.name.split('-cp')[0]}.tar.gz"
    listed: list[dict[str, Any]] = json.loads(image.run("hk-backend", "kernels", "--json").stdout)
    ours = [entry.name for arch in arches() for entry in catalogue(arch).kernels]
    assert sorted(kernel["name"] for kernel in listed) == sorted(ours)


def test_doctor_names_a_wheel_and_whether_its_code_objects_are_whole(image: Image) -> None:
    """An environment without engine, Ray and GPU has no other problem, until a code object is
    damaged."""
    found = image.doctor()
    assert [f["check"] for f in found["findings"] if f["severity"] == "problem"] == ["engine"]
    assert found["facts"]["installation"].startswith(f"wheel ({image.tag}) in {image.base}")
    assert "all whole" in found["facts"]["code_objects"]
    assert found["facts"]["hip_library"] == "none: torch is not a ROCm build"
    code = next(image.base.glob("lib/*/site-packages/hk_backend/kernels/codeobjects/gfx950/*.co"))
    whole = code.read_bytes()
    try:
        code.write_bytes(whole[:-1])
        found = image.doctor()
    finally:
        code.write_bytes(whole)
    what = {f["check"]: f["what"] for f in found["findings"]}
    assert f"has {len(whole) - 1} bytes instead of {len(whole)}" in what["code_objects"]


def test_cibuildwheel_would_build_every_python_that_is_supported(image: Image) -> None:
    """cibuildwheel reads pyproject.toml itself; building takes Docker."""
    image.run("python", "-m", "venv", "tools")
    tools = image.base / "tools" / "bin"
    env, asks = inherited(os.defpath), ("--platform", "linux", "--print-build-identifiers", ROOT)
    finished(tools / "python", "-m", "pip", "install", "-q", "cibuildwheel", env=env, check=True)
    listed = finished(tools / "cibuildwheel", *asks, env=env, check=True)
    supported = [f"cp3{minor}-manylinux_x86_64" for minor in range(10, 14)]
    assert listed.stdout.split() == supported


@pytest.mark.parametrize("python", OTHERS)
def test_the_wheel_of_another_python_serves_with_no_compiler(python: str, tmp_path: Path) -> None:
    """The test builds with each Python that is on the path."""
    if not builds(python):
        pytest.skip(f"no {python} with headers and venv on the path")
    image = build(tmp_path, python)
    abi = f"cp{python.removeprefix('python').replace('.', '')}"
    assert image.tag.startswith(f"{abi}-{abi}-manylinux_")
    for device in DEVICES:
        image.serve(device)
    facts = image.doctor()["facts"]
    assert facts["installation"].startswith(f"wheel ({image.tag}) in {image.base}")
    assert "all whole" in facts["code_objects"]
