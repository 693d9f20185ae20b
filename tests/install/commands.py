"""The commands that the documents show, and how a test runs one as it stands.

A fenced block says what it holds: `sh` commands, `python`, `json`, or `text`, which nobody runs.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from bench_serving.server import free_port
from tests.models import ROOT
from tests.processes import finished

DOCUMENTS = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "docs/*.md")


class Block(NamedTuple):
    """A fenced block; `line` is the number of its first line of text."""

    document: str
    line: int
    language: str
    text: str


class Command(NamedTuple):
    """`text`: the command without its comment, on one line unless it quotes several."""

    document: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {self.text.splitlines()[0]}"


def documents() -> list[str]:
    return [str(path.relative_to(ROOT)) for name in DOCUMENTS for path in sorted(ROOT.glob(name))]


def blocks(document: str, text: str) -> Iterator[Block]:
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text[: found.start(2)].count("\n") + 1
        yield Block(document, line, found[1], found[2])


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block; one that is continued or quotes a line break takes several lines."""
    start, lines = block.line, list[str]()
    for number, line in enumerate(block.text.splitlines(), block.line):
        lines.append(line)
        joined = "\n".join(lines)
        if line.endswith("\\") or not _is_complete(joined):
            continue
        text = re.sub(r"\\\n\s*", "", joined)
        yield Command(block.document, start, _without_comment(text))
        start, lines = number + 1, []
    assert not lines, f"{block.document}:{start}: a quotation does not end"


def _is_complete(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:  # no closing quotation
        return False
    return True


def _without_comment(text: str) -> str:
    for blank in re.finditer(r"\s#", text):
        if _is_complete(text[: blank.start()]):  # else it stands in a quotation
            return text[: blank.start()].strip()
    return text.strip()


def in_document(document: str) -> list[Command]:
    found = blocks(document, (ROOT / document).read_text())
    return [each for block in found if block.language == "sh" for each in commands(block)]


def environment() -> dict[str, str]:
    """The variables of a user who has activated this environment and set nothing of HK's.

    The folder of measurements stays the tests' own.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HK_") or name == "HK_CACHE_DIR"
    }
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def checkout(folder: Path) -> Path:
    """Make `folder` look like a checkout after ./demo; what commands write stays in it."""
    for path in ROOT.iterdir():
        if path.name not in (".venv", ".venv-sglang", "models", "results", "build", "dist", ".git"):
            (folder / path.name).symlink_to(path)
    for name in (".venv", ".venv-sglang"):  # an engine's commands run where this test runs
        (folder / name).symlink_to(sys.prefix)
    (folder / "models").mkdir()
    for path in (ROOT / "models").iterdir():
        (folder / "models" / path.name).symlink_to(path)
    return folder


def run(command: Command, folder: Path) -> str:
    """Run the command in `folder`; return what it prints. It fails the test if it dies."""
    shell = ("bash", "-euo", "pipefail", "-c", command.text)
    done = finished(*shell, cwd=folder, env=environment(), stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def serve(command: Command, folder: Path) -> None:
    """Run a server until it answers. Only its port differs from the line.

    It fails the test if the server ends.
    """
    port = free_port()
    log = folder / f"server-{port}.log"
    with log.open("w") as sink:
        process = subprocess.Popen(
            ["bash", "-c", f"exec env {command.text} --port {port}"],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while not _answers(f"http://127.0.0.1:{port}/health"):
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
                pytest.fail(f"{command}\n{log.read_text()[-4000:]}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(120)


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=5).is_success
    return False
