"""The one error type that the command shows its user."""

from __future__ import annotations

import importlib.metadata
import sys

from packaging.requirements import Requirement

EXTRA = "quantize"


class QuantizeError(Exception):
    """Something about the model, the output folder or the options; the message says what to do."""


def missing(error: ImportError) -> str:
    """What to do where a package of the extra cannot be imported."""
    wanted = map(Requirement, importlib.metadata.requires("hk-backend") or ())
    names = [
        f"'{each.name}{each.specifier}'"
        for each in wanted
        if each.marker and each.marker.evaluate({"extra": EXTRA})
    ]
    return f"quantize: {error}: {sys.executable} -m pip install {' '.join(names)}"
