"""The seed that decides which of the possible cases a session tests: the commit, or HK_TEST_SEED.

Proofs of kernels draw from a fixed seed instead (`fixed`), so that a record can be repeated.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.processes import finished

VARIABLE = "HK_TEST_SEED"


def seed() -> str:
    """The seed, set in the environment when it is first asked for: pytest-xdist's workers inherit
    it."""
    if VARIABLE not in os.environ:
        done = finished("git", "rev-parse", "--short=12", "HEAD", cwd=Path(__file__).parent)
        os.environ[VARIABLE] = done.stdout.strip() or "no-commit"
    return os.environ[VARIABLE]


def draw(name: str) -> random.Random:
    """A generator of the same numbers for the same name and seed."""
    return random.Random(f"{seed()} {name}")


def fixed(name: str) -> random.Random:
    """A generator of the same numbers for the same name, always: for checks whose results are
    recorded."""
    return random.Random(name)
