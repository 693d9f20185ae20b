"""A call in a process that has imported SGLang and nothing of HK, as a process that SGLang spawns.

The process is a fork of `Forks`, so that SGLang is not imported once more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.integration.shared.e2e.engine import Forks


def fresh(
    forks: Forks, folder: Path, work: Callable[[str], Any], given: str = "", **environment: str
) -> Any:
    """Return what `work(given)` returns there, which crosses in JSON.

    HK's variables are those of `environment`.

    Args:
        folder: the test's own.
        work: a function at the top of a module, which is imported there.
    """
    asked, answered, log = (folder / f"{work.__name__}.{kind}" for kind in ("asked", "json", "txt"))
    asked.write_text(json.dumps([work.__module__, work.__name__, given]))
    exit_code = forks.run(__name__, [asked, answered], log, environment)
    assert exit_code == 0, log.read_text()
    return json.loads(answered.read_text())


def main(asked: Path, answered: Path) -> None:
    module, name, given = json.loads(asked.read_text())
    answered.write_text(json.dumps(getattr(import_module(module), name)(given)))
