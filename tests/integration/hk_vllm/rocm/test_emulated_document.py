"""The example of docs/emulated-engine.md runs as it stands, with SmolLM2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.install import commands
from tests.models import ROOT, smollm2
from tests.processes import finished

DOCUMENT = "docs/emulated-engine.md"

pytestmark = pytest.mark.triton


@pytest.mark.engine_proof
def test_the_example(tmp_path: Path) -> None:
    blocks = {
        block.language: block for block in commands.blocks(DOCUMENT, (ROOT / DOCUMENT).read_text())
    }
    program = blocks["python"].text
    model = smollm2()
    assert f'"models/{model.name}"' in program
    (tmp_path / "models").symlink_to(model.parent)
    (tmp_path / "serve.py").write_text(program)
    [command] = commands.commands(blocks["sh"])
    text = command.text.replace("python", sys.executable, 1)
    paths = f"{ROOT}:{ROOT / 'integration'}"  # the code under test
    environment = {**commands.environment(), "PYTHONPATH": paths}
    done = finished("bash", "-c", text, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "' Paris.\\n\\n'" in done.stdout
    printed = {line.strip() for line in done.stdout.splitlines()}
    assert {line.strip() for line in blocks["text"].text.splitlines()} <= printed
