"""Every command in a block of README.md runs as it stands, and none is here that no test runs."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from bench_serving.server import free_port
from hk_backend.cli.app import app
from tests.models import ROOT, smollm2

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
LINES = [line for block in BLOCKS for line in block.splitlines()]
OURS = [line for line in LINES if line.startswith("hk-backend ") and " doctor" not in line]
SERVE = [line for line in LINES if "api_server" in line]
ELSEWHERE = {
    "./demo": "tests/install/test_two_commands.py",
    "./check": "tests/install/test_two_commands.py",
    "source .venv/bin/activate": "the environment of this test",
    "pip install .": "tests/install/test_image.py",
    "hk-backend doctor": "tests/cli/test_doctor_command.py",
}
"""Lines that another test runs, and which."""


def command(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def test_every_line_has_its_test() -> None:
    assert len(OURS) >= 3
    assert len(SERVE) == 1
    others = {" ".join(command(line)) for line in LINES} - {
        " ".join(command(line)) for line in OURS + SERVE
    }
    assert others == set(ELSEWHERE)


def test_no_line_has_a_place_for_something_else() -> None:
    """A line that is copied must run, which `--model MODEL` would not."""
    assert not [
        line for line in LINES if re.search(r"\b(?!HK_)[A-Z]{3,}\b(?!=)", line.split("#")[0])
    ]


@pytest.mark.parametrize("line", OURS)
def test_a_command_of_ours(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HK_BACKEND", raising=False)
    result = CliRunner().invoke(app, command(line)[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout


def test_the_file_fits_a_screen_or_two() -> None:
    assert len(README.splitlines()) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("line", SERVE)
def test_the_server_starts(line: str, tmp_path: Path) -> None:
    """Only the port and the folder of models differ from the line."""
    variable, _, *arguments = command(line)
    name, _, value = variable.partition("=")
    # without it vLLM wants 92% of the machine's memory to be free
    assert "--kv-cache-memory-bytes" in arguments
    place = arguments.index("--model") + 1
    model = smollm2()
    assert arguments[place] == f"models/{model.name}"
    arguments[place] = str(model)
    url = f"http://127.0.0.1:{(port := free_port())}/health"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments, "--port", str(port)],
            env={**os.environ, name: value},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while not answers(url):
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
                pytest.fail((tmp_path / "log").read_text()[-4000:])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(120)


def answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=5).is_success
    return False
