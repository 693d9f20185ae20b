"""`./demo` and `./check` install, ask and run what they should; `make` never empties an environment
of another checkout."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.models import ROOT
from tests.processes import Done, finished

NEVER = "Nothing was installed"


INSTALLS = ["apt-get update", "apt-get install -y --no-install-recommends make g++"]
WITH_SUDO = ["sudo", *(word for line in INSTALLS for word in ("sudo", line))]
MADE = "make --no-print-directory demo"
ASKS = "Missing on this machine: make g++"


@pytest.mark.parametrize(
    ("missing", "user", "says", "code", "done", "said"),
    [
        ("", "sudo", "", 0, [MADE], ""),
        ("clang-22", "root", "", 0, [MADE], ""),  # only the check wants LLVM
        ("make g++", "sudo", "\n", 0, [*WITH_SUDO, MADE], ASKS),
        ("make g++", "sudo", "y\n", 0, [*WITH_SUDO, MADE], ASKS),
        ("make g++", "sudo", "Yes\n", 0, [*WITH_SUDO, MADE], ASKS),
        ("make g++", "sudo", "n\n", 1, [], NEVER),
        ("make g++", "sudo", "no\n", 1, [], NEVER),
        ("make g++", "sudo", "", 1, [], NEVER),  # nobody there
        ("make g++", "root", "--yes", 0, [*INSTALLS, MADE], ASKS),
        ("make g++", "nobody", "--yes", 1, [], "let root run  apt-get install -y make g++"),
        ("make g++", "no apt", "--yes", 1, [], "There is no apt-get here"),
        ("make g++", "offline", "--yes", 1, INSTALLS[:1], "build/logs/apt-update.log"),
    ],
)
def test_what_is_missing_is_installed_after_one_question(
    tmp_path: Path, missing: str, user: str, says: str, code: int, done: list[str], said: str
) -> None:
    """The output of installers is shown only if they fail. Programs of a folder stand for a
    machine's own, and note what they are asked for."""
    asked, programs, checkout = (tmp_path / name for name in ("asked", "bin", "checkout"))
    (checkout / "requirements").mkdir(parents=True)
    programs.mkdir()
    for name in ("demo", "requirements/set-up", "requirements/step"):
        shutil.copy(ROOT / name, checkout / name)
    for name in ("bash", "dirname", "env", "mkdir", "tail", "sed", "grep"):
        (programs / name).symlink_to(f"/bin/{name}")
    note, root = f'echo "$(basename $0) $*" >> {asked}', user not in ("sudo", "nobody")
    (programs / "basename").symlink_to("/bin/basename")
    scripts = {
        checkout / "requirements/missing-debian-packages": (
            f'[ "$1" = --kernels ] || echo {missing if missing != "clang-22" else ""}'
        ),
        programs / "id": f"echo {0 if root else 1000}",
        programs / "make": note,
        programs / "apt-get": f"{note}; echo noise; exit {int(user == 'offline')}",
        programs / "sudo": f'echo sudo >> {asked}; [ "$1" = -v ] || exec "$@"',
    }
    absent = {"sudo": user != "sudo", "apt-get": user == "no apt"}
    for path, text in scripts.items():
        if not absent.get(path.name):
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
    options = [says] if says.startswith("--") else []
    env = {"PATH": str(programs)}
    found = finished(checkout / "demo", *options, input="" if options else says, env=env)
    assert bool(found.returncode) == code, found.stderr
    assert (asked.read_text().splitlines() if asked.exists() else []) == done
    assert said in found.stderr
    assert ("noise" in found.stderr + found.stdout) == (user == "offline")


def make(folder: Path, *words: str) -> Done:
    """`make -n` in `folder`, without the variables of a `make` that runs this test."""
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return finished("make", "-n", *words, cwd=folder, env=env)


def making(folder: Path, environment: str) -> Done:
    return make(folder, f"VENV={environment}", f"{environment}/.stamps/python")


def checkout(folder: Path) -> Path:
    """A checkout with an environment that is complete as far as Python itself."""
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
