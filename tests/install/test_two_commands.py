"""`./demo` and `./check`: what they install, whom they ask, and what they run."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(("command", "target"), [("demo", "demo"), ("check", "test")])
def test_nothing_is_asked_where_nothing_is_missing(
    tmp_path: Path, command: str, target: str
) -> None:
    machine = Machine(tmp_path, [], root=False)
    done = machine.run(command, "VENV=other")
    assert done.returncode == 0, done.stderr
    assert machine.done == [f"make --no-print-directory {target} VENV=other"]


def test_only_the_check_wants_llvm(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ["clang-22"], root=True)
    machine.run("demo", "--yes")
    assert machine.done == ["make --no-print-directory demo"]
    machine.run("check", "--yes")
    assert "apt-get install -y --no-install-recommends clang-22" in machine.done


@pytest.mark.parametrize("answer", ["", "y", "Yes"])
def test_one_question_then_sudo(tmp_path: Path, answer: str) -> None:
    machine = Machine(tmp_path, ["make", "g++"], root=False)
    done = machine.run("demo", says=f"{answer}\n")
    assert done.returncode == 0, done.stderr
    assert "Missing on this machine: make g++" in done.stderr
    assert machine.done == [
        "sudo",
        "sudo",
        "apt-get update",
        "sudo",
        "apt-get install -y --no-install-recommends make g++",
        "make --no-print-directory demo",
    ]
    assert "noise" not in done.stderr + done.stdout


@pytest.mark.parametrize("answer", ["n\n", "no\n", ""], ids=["n", "no", "nobody there"])
def test_no_is_an_answer(tmp_path: Path, answer: str) -> None:
    machine = Machine(tmp_path, ["make"], root=False)
    done = machine.run("demo", says=answer)
    assert done.returncode == 1
    assert NEVER in done.stderr
    assert machine.done == []


def test_root_needs_no_sudo(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ["make"], root=True, sudo=False)
    assert machine.run("demo", "--yes").returncode == 0
    assert machine.done[0] == "apt-get update"


def test_neither_root_nor_sudo(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ["make", "g++"], root=False, sudo=False)
    done = machine.run("demo", "--yes")
    assert done.returncode == 1
    assert "let root run  apt-get install -y make g++" in done.stderr
    assert machine.done == []


def test_a_system_without_apt(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ["make"], root=True)
    (machine.programs / "apt-get").unlink()
    done = machine.run("demo", "--yes")
    assert done.returncode == 1
    assert "There is no apt-get here" in done.stderr


def test_a_failed_installation_names_its_log(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ["make"], root=True)
    (tmp_path / "offline").touch()
    done = machine.run("demo", "--yes")
    assert done.returncode != 0
    assert "The whole log: build/logs/apt-update.log" in done.stderr
    assert "noise" in done.stderr
    assert "make --no-print-directory demo" not in machine.done


def test_contributing_names_the_packages_that_they_install() -> None:
    script = (ROOT / "requirements/missing-debian-packages").read_text()
    packages = set(re.findall(r"missing\+=\((\S+)\)", script))
    (line,) = re.findall(r"apt-get install -y (.*)", (ROOT / "CONTRIBUTING.md").read_text())
    assert packages - {"python3"} == set(line.split()), "python3 comes with python3-dev"
