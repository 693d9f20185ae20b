"""Replaces functions of an engine, each once and marked with the function that it replaces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MARK = "hk_original"


def wrap(owner: Any, name: str, around: Callable[..., Any], static: bool = False) -> None:
    """Replaces a function of `owner` by `around(original, ...)`; harmless to call again."""

    def make(original: Any) -> Any:
        return lambda *args, **kwargs: around(original, *args, **kwargs)

    replace(owner, name, make, static)


def replace(owner: Any, name: str, make: Callable[[Any], Any], static: bool = False) -> None:
    """Replaces a function of `owner` by `make(original)`; harmless to call again."""
    original = getattr(owner, name)
    if hasattr(original, MARK):
        return
    made = functools.wraps(original)(make(original))
    setattr(made, MARK, original)
    setattr(owner, name, staticmethod(made) if static else made)
