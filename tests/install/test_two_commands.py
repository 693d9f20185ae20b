"""`./demo` and `./check`: what they install, whom they ask, and what they run."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.models import ROOT

NEVER = "Nothing was installed"


class Machine:
    """A folder of programs that stand for a machine's own, and a checkout's scripts.

    Args:
        missing: Debian packages that it lacks. root: who runs the commands.
    """

    def __init__(self, folder: Path, missing: Sequence[str], root: bool, sudo: bool = True) -> None:
        self.asked = folder / "asked"
        self.programs = folder / "bin"
        self.checkout = folder / "checkout"
        self.programs.mkdir()
        (self.checkout / "requirements").mkdir(parents=True)
        for name in ("demo", "check", "requirements/set-up", "requirements/step"):
            target = self.checkout / name
            target.write_text((ROOT / name).read_text())
            target.chmod(0o755)
        self._script(self.checkout / "requirements/missing-debian-packages", self._lacks(missing))
        self._script(self.programs / "id", f"echo {0 if root else 1000}")
        self._script(self.programs / "make", f'echo "make $*" >> {self.asked}')
        self._script(
            self.programs / "apt-get",
            f'echo "apt-get $*" >> {self.asked}; echo noise; [ ! -e {folder}/offline ]',
        )
        if sudo:
            self._script(
                self.programs / "sudo", f'echo sudo >> {self.asked}; [ "$1" = -v ] || exec "$@"'
            )
        for name in ("bash", "dirname", "env", "mkdir", "tail", "sed", "grep"):
            (self.programs / name).symlink_to(f"/bin/{name}")

    def run(
        self, command: str, *arguments: str, says: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / command, *arguments],
            input=says,
            env={"PATH": str(self.programs)},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def done(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []

    @staticmethod
    def _lacks(missing: Sequence[str]) -> str:
        """Packages of the kernels are those of LLVM."""
        kernels = [name for name in missing if "22" in name]
        others = [name for name in missing if "22" not in name]
        return f'[ "$1" = --kernels ] && echo {" ".join(kernels)} || echo {" ".join(others)}'

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)


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
    """What installers print is shown only if they fail."""
    is_root = user not in ("sudo", "nobody")
    machine = Machine(tmp_path, missing.split(), root=is_root, sudo=user == "sudo")
    if user == "no apt":
        (machine.programs / "apt-get").unlink()
    if user == "offline":
        (tmp_path / "offline").touch()
    options = [says] if says.startswith("--") else []
    found = machine.run("demo", *options, says="" if options else says)
    assert bool(found.returncode) == code, found.stderr
    assert machine.done == done
    assert said in found.stderr
    assert ("noise" in found.stderr + found.stdout) == (user == "offline")
