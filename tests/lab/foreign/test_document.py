"""The example of docs/run-object.md runs as it stands."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.install import commands
from tests.install.commands import Block
from tests.models import ROOT
from tests.processes import Done, finished

DOCUMENT = "docs/run-object.md"


@pytest.fixture(scope="module")
def blocks() -> dict[str, Block]:
    """The document's only block of each language."""
    found = list(commands.blocks(DOCUMENT, (ROOT / DOCUMENT).read_text()))
    assert len(found) == len({block.language for block in found})
    return {block.language: block for block in found}


@pytest.mark.triton
def test_the_example(blocks: dict[str, Block], tmp_path: Path) -> None:
    (tmp_path / "add.py").write_text(blocks["python"].text)
    environment = {**commands.environment(), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    # the code under test, also where the environment's own checkout is another one
    ours = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

    def run(text: str) -> Done:
        command = text.replace("hk-backend", f"{sys.executable} -m hk_backend.cli.app", 1)
        shell = ("bash", "-c", command)
        return finished(*shell, cwd=tmp_path, env={**environment, "PYTHONPATH": ours})

    compiling, listing, running = (each.text for each in commands.commands(blocks["sh"]))
    compiled = run(compiling)
    assert compiled.stdout == "--block 256 --dynamic-lds 0\n", compiled.stderr
    listed = run(listing)
    assert [line.split()[2] for line in listed.stdout.splitlines()[2:]] == [
        *("global_buffer", "global_buffer", "global_buffer", "by_value"),
        *("global_buffer", "global_buffer"),
    ]
    ran = run(running)
    assert ran.returncode == 0, ran.stderr
    assert "no findings" in ran.stdout
    assert "bound by" in ran.stdout
    assert np.isfinite(np.load(tmp_path / "out.npy")).all()
    short = run(running.replace("f32[4096]=ones", "f32[4000]=ones"))
    assert short.returncode == 1
    assert normal(blocks["text"].text) in normal(short.stdout)


def normal(text: str) -> str:
    """The text with one blank for each break, and without the folder of a file or an address."""
    without_folders = re.sub(r"/\S+/add\.py", "add.py", " ".join(text.split()))
    return re.sub(r"0x[0-9a-f]+", "0x", without_folders)
