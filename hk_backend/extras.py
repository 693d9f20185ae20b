"""Packages that only some commands need: the extras of pyproject.toml."""

from __future__ import annotations

import importlib.metadata
import sys

from packaging.requirements import Requirement


def missing(error: ImportError, what: str, extra: str) -> str:
    """Advice to a user where `what` cannot import a package of an extra."""
    wanted = map(Requirement, importlib.metadata.requires("hk-backend") or ())
    names = [
        f"'{each.name}{each.specifier}'"
        for each in wanted
        if each.marker and each.marker.evaluate({"extra": extra})
    ]
    return f"{what}: {error}: {sys.executable} -m pip install {' '.join(names)}"
