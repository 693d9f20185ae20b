"""`make` never empties an environment that is not of its own checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def checkout(folder: Path) -> Path:
    """With an environment that is complete as far as Python itself."""
    stamps = folder / ".venv" / ".stamps"
    stamps.mkdir(parents=True)
    shutil.copy(MAKEFILE, folder)
    (stamps / "folder").write_text(f"{folder}\n")
    (stamps / "python").touch()
    return folder


def make(folder: Path, environment: str) -> subprocess.CompletedProcess[str]:
    """Says what it would do for `environment`, and does what it does before that. Nothing of a
    `make` that runs this test reaches it."""
    ours = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    return subprocess.run(
        ["make", "-n", f"VENV={environment}", f"{environment}/.stamps/python"],
        cwd=folder,
        env=ours,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_own_is_used(tmp_path: Path) -> None:
    own = checkout(tmp_path / "own")
    assert "up to date" in make(own, ".venv").stdout


@pytest.mark.parametrize("inside", ["", "own/below"], ids=["beside it", "below it"])
def test_another_checkout_s_is_refused(tmp_path: Path, inside: str) -> None:
    own, other = checkout(tmp_path / "own"), checkout(tmp_path / inside / "other")
    for environment in (other / ".venv", own / "link"):
        if environment.name == "link":
            environment.symlink_to(other / ".venv")
        done = make(own, str(environment))
        assert done.returncode != 0
        assert f"{environment} belongs to the checkout in {other}" in done.stderr
    assert (other / ".venv" / ".stamps" / "python").exists()


def test_one_that_was_copied_with_its_checkout_is_made_again(tmp_path: Path) -> None:
    original = checkout(tmp_path / "original")
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    assert "-m venv --clear .venv" in make(copy, ".venv").stdout
    assert (original / ".venv" / ".stamps" / "python").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    own, other = checkout(tmp_path / "own"), tmp_path / "other"
    other.mkdir()
    assert "-m venv --clear" in make(own, str(other)).stdout
    (other / "letters").touch()
    done = make(own, str(other))
    assert done.returncode != 0
    assert "is not one of our environments" in done.stderr
