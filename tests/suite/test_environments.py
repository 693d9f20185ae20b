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


def dry_run(target: str, folder: Path) -> list[str]:
    """The lines that `make target` would run from nothing, continued ones joined."""
    ours = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    places = [f"{name}={folder / name}" for name in ("VENV", "VENV_SGLANG", "MODELS")]
    done = subprocess.run(
        ["make", "-n", target, *places],
        cwd=MAKEFILE.parent,
        env=ours,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("target", ["demo", "demo-sglang", "venv-tests", "environments"])
def test_installers_and_the_compiler_print_into_a_log(target: str, tmp_path: Path) -> None:
    loud = [
        line for line in dry_run(target, tmp_path) if "pip install" in line or "setup.py" in line
    ]
    assert len(loud) >= 4
    assert [line for line in loud if "requirements/step" not in line] == []


@pytest.mark.parametrize("target", ["demo", "demo-sglang"])
def test_the_demo_installs_nothing_for_tests(target: str, tmp_path: Path) -> None:
    extras = [line for line in dry_run(target, tmp_path) if "-e '.[" in line]
    assert len(extras) == 1
    assert "-e '.[demo]'" in extras[0]


def test_the_tests_install_their_tools(tmp_path: Path) -> None:
    """The control of the last one."""
    assert any("test" in line for line in dry_run("venv-tests", tmp_path) if "-e '.[" in line)


@pytest.mark.parametrize("target", ["demo", "demo-sglang"])
def test_the_demo_compiles_first_what_it_shows(target: str, tmp_path: Path) -> None:
    """Kernels for this machine's processor, then its table, then the emulator."""
    lines = dry_run(target, tmp_path)
    steps = ["HK_NATIVE=host HK_ISA_LEVELS=native", "bench_serving demo", "HK_NATIVE=all HK_"]
    places = [next(n for n, line in enumerate(lines) if step in line) for step in steps]
    assert places == sorted(places)
    assert not any("HK_ISA_LEVELS=all" in line for line in lines)


def test_the_tests_compile_every_instruction_set(tmp_path: Path) -> None:
    lines = [line for line in dry_run("environments", tmp_path) if "HK_ISA_LEVELS" in line]
    assert "HK_NATIVE=all HK_ISA_LEVELS=all" in lines[-1]


def test_an_environment_of_the_tests_keeps_every_instruction_set(tmp_path: Path) -> None:
    (stamps := tmp_path / "VENV" / ".stamps").mkdir(parents=True)
    for name in ("folder", "python", "native-all"):
        (stamps / name).write_text(f"{MAKEFILE.parent}\n")
    lines = [line for line in dry_run("venv", tmp_path) if "HK_ISA_LEVELS" in line]
    assert lines
    assert all("HK_ISA_LEVELS=all" in line for line in lines)
