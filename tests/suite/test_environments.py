"""`make` never empties an environment of another checkout; what it installs and compiles."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.models import ROOT


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Says what it would do in `folder`, and does what it does before that. Nothing reaches it of a
    `make` that runs this test."""
    return subprocess.run(
        ["make", "-n", *words],
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        capture_output=True,
        text=True,
        check=False,
    )


def making(folder: Path, environment: str) -> subprocess.CompletedProcess[str]:
    return make(folder, f"VENV={environment}", f"{environment}/.stamps/python")


def checkout(folder: Path) -> Path:
    """With an environment that is complete as far as Python itself."""
    stamps = folder / ".venv" / ".stamps"
    stamps.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    (stamps / "folder").write_text(f"{folder}\n")
    (stamps / "python").touch()
    return folder


@pytest.mark.parametrize("inside", ["", "own/below"], ids=["beside it", "below it"])
def test_its_own_is_used_and_another_checkout_s_is_refused(tmp_path: Path, inside: str) -> None:
    own, other = checkout(tmp_path / "own"), checkout(tmp_path / inside / "other")
    assert "up to date" in making(own, ".venv").stdout
    (own / "link").symlink_to(other / ".venv")
    for environment in (other / ".venv", own / "link"):
        done = making(own, str(environment))
        assert done.returncode != 0
        assert f"{environment} belongs to the checkout in {other}" in done.stderr
    assert (other / ".venv" / ".stamps" / "python").exists()


def test_one_that_was_copied_with_its_checkout_is_made_again(tmp_path: Path) -> None:
    original = checkout(tmp_path / "original")
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    assert "-m venv --clear .venv" in making(copy, ".venv").stdout
    assert (original / ".venv" / ".stamps" / "python").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    own, other = checkout(tmp_path / "own"), tmp_path / "other"
    other.mkdir()
    assert "-m venv --clear" in making(own, str(other)).stdout
    (other / "letters").touch()
    done = making(own, str(other))
    assert done.returncode != 0
    assert "is not one of our environments" in done.stderr
