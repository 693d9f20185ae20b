"""Bad arguments are refused in our words, and nothing is done."""

from __future__ import annotations

import pytest
from typer import Typer
from typer.testing import CliRunner

from bench_serving.__main__ import app as serving
from hk_backend.cli.app import app


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (app, ["quantize", "in", "out", "--format", "nope"], "'--format': 'nope' is not one of"),
        (app, ["bench", "linear", "--isa", "nope"], "'--isa': 'nope' is not one of"),
        (serving, ["serve", "--engine", "nope"], "'--engine': 'nope' is not one of"),
    ],
)
def test_a_choice_that_is_not_offered(command: Typer, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
