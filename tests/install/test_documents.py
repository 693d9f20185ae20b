"""Every command of the documents runs as it stands, or the table says why it does not."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hk_backend.cli.app import app
from tests.install import command_table, commands
from tests.install.command_table import HERE, LONG, MAKE, SERVER, SHELL, beginning, every, found
from tests.install.commands import Command
from tests.models import ROOT, smollm2


def test_every_command_is_in_the_table_and_nothing_else() -> None:
    keys = {str(command): beginning(command) for command in every()}
    assert [command for command, key in keys.items() if key is None] == []
    assert command_table.TABLE.keys() - keys.values() == set(), "they are in no document any more"
    tests = set(command_table.TABLE.values()) - set(command_table.WAYS)
    assert [name for name in sorted(tests) if not (ROOT / name).is_file()] == []
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80, "a screen or two"


@pytest.mark.parametrize("command", found(HERE), ids=lambda command: command.text)
def test_a_command_in_this_process(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HK_BACKEND", raising=False)
    result = CliRunner().invoke(app, shlex.split(command.text)[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout


ELSEWHERE = ("import triton", "vllm_engine.install(")
"""Texts in blocks that tests/lab/foreign/test_document.py runs, and test_emulated_document.py."""


@pytest.mark.parametrize("command", found(SHELL), ids=str)
def test_a_command_in_a_shell(command: Command, tmp_path: Path) -> None:
    commands.run(command, commands.checkout(tmp_path))


@pytest.mark.parametrize("command", found(MAKE), ids=str)
def test_make_knows_what_a_command_asks(command: Command, tmp_path: Path) -> None:
    places = [f"{name}={tmp_path / name}" for name in ("VENV", "VENV_SGLANG", "MODELS")]
    dry = Command(*command[:2], f"{command.text} -n {shlex.join(places)}")
    assert commands.run(dry, ROOT)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("document", commands.documents())
def test_the_python_of_a_document(document: str) -> None:
    """Blocks that need a process of their own have tests of their own (`ELSEWHERE`)."""
    for block in commands.blocks(document, (ROOT / document).read_text()):
        if block.language == "python" and not any(text in block.text for text in ELSEWHERE):
            exec(compile("\n" * (block.line - 1) + block.text, document, "exec"), {})


@pytest.mark.slow
@pytest.mark.parametrize("document", sorted({each.document for each in found(LONG, SERVER)}))
def test_the_long_commands_of_a_document(document: str, tmp_path: Path) -> None:
    """The commands run in their order, since one may read what another has written."""
    smollm2()
    folder = commands.checkout(tmp_path)
    servers = found(SERVER)
    for command in found(LONG, SERVER):
        if command.document == document:
            (commands.serve if command in servers else commands.run)(command, folder)
