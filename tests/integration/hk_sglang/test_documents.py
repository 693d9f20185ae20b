"""The documents' commands that need SGLang run as they stand, in SGLang's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.install import commands
from tests.install.command_table import SGLANG, found
from tests.models import smollm2

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("command", found(SGLANG), ids=str)
def test_a_command(command: commands.Command, tmp_path: Path) -> None:
    smollm2()
    folder = commands.checkout(tmp_path)
    server = "launch_server" in command.text
    (commands.serve if server else commands.run)(command, folder)
