"""What vLLM's real selector chooses by default on an MI355X, asked in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.shared.defaults.cells import Cell
from tests.integration.shared.defaults.traffic import CHECKPOINT, FP8
from tests.models import ROOT

Choices = dict[str, dict[str, dict[str, Any]]]
"""By setting, layer and dtype of the cache: what `session.choose` found."""


def parent_of(cell: Cell) -> Parent:
    """The backend that serves `cell`, its layout and the size of its pages."""
    dtype = FP8 if cell.traffic.cache == CHECKPOINT else cell.traffic.cache
    found = choices()[cell.setting][cell.attention.name][dtype]
    member = found["path"].rpartition("HK_")[2]
    size = found["block_size"]
    parent = Parent(member, member, found["layout"], size, size)
    assert found["path"] == parent.hk_path, "HK is not around it"
    return parent


@cache
def choices() -> Choices:
    """Of all settings."""
    sessions = [_ask("--aiter"), _ask()]
    return {setting: of for session in sessions for setting, of in _answers(session).items()}


def _ask(*flags: str) -> subprocess.Popen[str]:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("HK_", "VLLM_"))
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.hk_vllm.rocm.defaults.session", *flags],
        cwd=ROOT,
        env=environment | {"VLLM_LOGGING_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _answers(session: subprocess.Popen[str]) -> Choices:
    out, errors = session.communicate(timeout=300)
    assert session.returncode == 0, errors
    answers: Choices = json.loads(out.splitlines()[-1])
    return answers
