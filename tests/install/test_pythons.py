"""Wheels of the other Pythons: those that are on the path are built, and serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.install.image import DEVICES, build
from tests.install.pythons import OTHERS, builds

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("python", OTHERS)
def test_its_wheel_serves_with_no_compiler(python: str, tmp_path: Path) -> None:
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
