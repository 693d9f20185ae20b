"""Replaces functions of an engine, each once and marked with the function that it replaces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MARK = "hk_original"


def wrap(owner: Any, name: str, around: Callable[..., Any], static: bool = False) -> None:
    """Replaces a function of `owner` by `around(original, ...)`; harmless to call again."""
    original = getattr(owner, name)
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(wrapper, MARK, original)
    setattr(owner, name, staticmethod(wrapper) if static else wrapper)
