"""Commands that tests run to their end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

Done = subprocess.CompletedProcess[str]


def finished(*command: str | Path, check: bool = False, **options: Any) -> Done:
    """Run a command, and return its exit code and what it printed. `options`: of `subprocess`."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)


def python(*words: str | Path, check: bool = False, **options: Any) -> Done:
    """Run this Python to its end, as `finished` does."""
    return finished(sys.executable, *words, check=check, **options)
