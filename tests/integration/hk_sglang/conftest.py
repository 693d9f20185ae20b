"""Tests that need SGLang, on its CPU platform without its kernel package (cpu_platform/)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.integration.hk_sglang import linear_layers
from tests.integration.hk_sglang.linear_checkpoints import CHECKPOINTS
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear_checkpoints import Checkpoint

os.environ.setdefault("SGLANG_PLATFORM", "hk_cpu")  # SGLang reads it when it is imported


@pytest.fixture(scope="session")
def engine() -> LinearEngine:
    """What the shared tests of the linear route ask."""
    return linear_layers


@pytest.fixture
def elsewhere() -> Callable[[str], str]:
    """Runs a program where HK has registered nothing, and returns what it prints."""

    def printed(program: str) -> str:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    return printed


@pytest.fixture(params=CHECKPOINTS)
def any_checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    """Each checkpoint that the engine reads, in turn."""
    return CHECKPOINTS[request.param]
