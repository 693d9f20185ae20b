"""Replaces functions of an engine, each once and marked with the function that it replaces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

MARK = "hk_original"


def original(function: Any) -> Any:
    """The engine's own function, which HK may have replaced by `function`."""
    return getattr(function, MARK, function)


def wrap(owner: Any, name: str, around: Callable[..., Any], static: bool = False) -> None:
    """Replaces a function of `owner` by `around(original, ...)`; harmless to call again."""

    def make(stock: Any) -> Any:
        return lambda *args, **kwargs: around(stock, *args, **kwargs)

    replace(owner, name, make, static)


def replace(owner: Any, name: str, make: Callable[[Any], Any], static: bool = False) -> None:
    """Replaces a function of `owner` by `make(original)`; harmless to call again."""
    stock = getattr(owner, name)
    if hasattr(stock, MARK):
        return
    made = functools.wraps(stock)(make(stock))
    setattr(made, MARK, stock)
    setattr(owner, name, staticmethod(made) if static else made)
