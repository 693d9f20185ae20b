"""The steps of the Dockerfile without Docker: a fresh environment stands for the base image.

What it uses of Dockerfiles is understood, and nothing else: one folder (`/hk`), which is another
one here; COPY of the whole context; a bind mount from a stage to the same path.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.models import ROOT

IMAGE_FOLDER = "/hk"


def steps(text: str) -> list[tuple[str, str]]:
    """Instruction and argument of each step."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, rest in re.findall(r"^([A-Z]+)\s+(.*)$", joined, re.M)]


def run(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
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
    """What git would take, which is what .dockerignore leaves of a checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
