"""The whole check goes through all of its parts, and names those that fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.models import ROOT

PARTS = ["environments", "lint", "test-held", "test"]


@pytest.mark.parametrize("failing", [[], ["environments"], ["lint", "test"], PARTS])
def test_what_fails_hides_nothing(failing: list[str], tmp_path: Path) -> None:
    """Programs of the name stand in for make and apt-get."""
    fails = " | ".join(failing) or "nothing"
    make = f'echo "$1" >> {tmp_path}/asked\ncase "$1" in {fails}) exit 2;; esac\n'
    for name, script in (("make", make), ("apt-get", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (tmp_path / "asked").read_text().split() == PARTS, done.stderr
    assert done.returncode == bool(failing)
    said = f"failed: make {' '.join(failing)}\n" if failing else ""
    assert done.stdout == said
