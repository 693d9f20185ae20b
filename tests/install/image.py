"""The Dockerfile's image made without Docker: a wheel, and the environment it is installed in.

A fresh environment stands for the base image. What the Dockerfile uses is understood, and nothing
else: one folder (`/hk`), which is another one here; COPY of the whole context; a bind
mount from a stage to the same path.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tests.install import serve
from tests.models import ROOT
from tests.processes import Done, finished

IMAGE_FOLDER = "/hk"


def steps(text: str) -> list[tuple[str, str]]:
    """Instruction and argument of each step."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, rest in re.findall(r"^([A-Z]+)\s+(.*)$", joined, re.M)]


def run_dockerfile(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Run every step with `folder` for the image's.

    Args:
        environment: of the commands; its PATH leads to what stands for the base's Python.

    Returns:
        what the image adds to its environment.

    Raises:
        subprocess.CalledProcessError: a command failed; its output is on this process's.
    """
    added: dict[str, str] = {}
    for word, argument in steps((ROOT / "Dockerfile").read_text()):
        if word == "WORKDIR":
            here(argument, folder).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            assert argument == ". .", argument
            copy_context(folder)
        elif word == "RUN":
            command = re.sub(r"--mount=\S+", check_mount, argument).replace(
                IMAGE_FOLDER, str(folder)
            )
            print(f"+ {command}", flush=True)
            subprocess.run(
                ["/bin/sh", "-c", command], cwd=folder, env={**environment, **added}, check=True
            )
        elif word == "ENV":
            added |= dict(pair.split("=", 1) for pair in shlex.split(argument))
        else:
            assert word in ("ARG", "FROM"), word
    return added


def here(path: str, folder: Path) -> Path:
    assert path.startswith(IMAGE_FOLDER), path
    return Path(str(folder) + path.removeprefix(IMAGE_FOLDER))


def check_mount(flag: re.Match[str]) -> str:
    """A stage's folder at its own path needs no step here."""
    options = dict(pair.split("=", 1) for pair in flag[0].removeprefix("--mount=").split(","))
    assert options["source"] == options["target"], flag[0]
    return ""


def copy_context(folder: Path) -> None:
    """Copies what git would take, which is what .dockerignore leaves of a checkout."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = finished(*command, cwd=ROOT, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


NOT_OURS = ("PYTHON", "HK_", "MAKE", "MFLAGS", "VIRTUAL_ENV", "VENV", "LD_", "PYTEST_")
DEVICES = "emulated:gfx950", "cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


class Image(NamedTuple):
    """`folder`: where the wheel was built; `base`: the environment it is installed in;
    `added`: what the Dockerfile adds to the variables."""

    folder: Path
    base: Path
    added: dict[str, str]

    @property
    def wheel(self) -> Path:
        (found,) = self.folder.glob("dist/*.whl")
        return found

    @property
    def tag(self) -> str:
        """Tag of the wheel's name: Python, its ABI and the platform."""
        return "-".join(self.wheel.name.removesuffix(".whl").split("-")[2:])

    def run(self, *command: str, **environment: str) -> Done:
        """Run one of the environment's own commands, with no other on the path, outside of any
        checkout."""
        commands = self.base / "bin"
        env = {**inherited(str(commands)), **self.added, **environment}
        return finished(commands / command[0], *command[1:], cwd=self.base, env=env)

    def serve(self, device: str) -> dict[str, Any]:
        """Returns what serve.py prints on `device`, where no compiler can be found."""
        compilers = ("c++", "cc", "clang++")
        assert not any(shutil.which(c, path=str(self.base / "bin")) for c in compilers)
        done = self.run("python", "serve.py", HK_DEVICE=device)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["device"].startswith(device)
        assert Path(answer["package"]).is_relative_to(self.base)
        return answer

    def doctor(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("hk-backend", "doctor", "--json").stdout)
        return found


def build(root: Path, python: str) -> Image:
    """Builds a wheel with `python` and installs it into a fresh environment of the same.

    Args:
        root: an empty folder, for both.
        python: a command on the path, or where it is.

    Raises:
        subprocess.CalledProcessError: a command failed; its output is on this process's.
    """
    base, folder = root / "base", root / "hk"
    subprocess.run([python, "-m", "venv", base], env=inherited(os.environ["PATH"]), check=True)
    environment = inherited(f"{base / 'bin'}:{os.defpath}")
    install_torch(base, environment)
    added = run_dockerfile(folder, environment)
    shutil.copy(serve.__file__, base)
    return Image(folder, base, added)


def install_torch(base: Path, environment: dict[str, str]) -> None:
    """All that matters here of a base image: ours, or another build of the version where a Python
    has none."""
    pip = [str(base / "bin/python"), "-m", "pip", "install"]
    ours = f"torch=={version('torch')}"
    for wanted in ([ours], [ours, "--extra-index-url", TORCH_INDEX]):
        if not subprocess.run([*pip, *wanted], env=environment, check=False).returncode:
            return
    subprocess.run([*pip, ours.partition("+")[0]], env=environment, check=True)


def inherited(path: str) -> dict[str, str]:
    """The variables of this process, except those that lead to this checkout or its environment."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith(NOT_OURS)}
    return {**kept, "PATH": path}
