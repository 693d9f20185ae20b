"""Functions and classes of an engine that another plugin has replaced: HK leaves them alone.

HK would compute instead of them, so another plugin's code would silently not run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

HARMLESS = sys.stdlib_module_names | {"torch", "hk_backend", "hk_vllm", "hk_sglang"}
"""Packages that may decorate an engine's functions, HK's own included."""


def foreign(function: Any, engine: str) -> str:
    """Module and name of another plugin's code in a function or class; empty if there is none.

    `functools.wraps` copies the name of the wrapped function, so the name alone says nothing.

    Args:
        engine: the engine's package.
    """
    for link in _chain(function):
        module = _module_of(link)
        if module.partition(".")[0] not in HARMLESS | {engine}:
            code = getattr(link, "__code__", None)
            name = code.co_name if code else getattr(link, "__name__", type(link).__name__)
            return f"{module}.{name}"
    return ""


def foreign_method(owner: type, engine: str, *names: str) -> str:
    """Reason why HK must leave methods `names` of `owner` alone; empty if there is none.

    The reason is the first of them that another plugin has replaced.
    """
    for name in names:
        if found := foreign(getattr(owner, name), engine):
            return f"{owner.__name__}.{name} is another plugin's: {found}"
    return ""


def _chain(function: Any) -> Iterator[Any]:
    """Yields a function, the function that it wraps or calls with fewer arguments, and so on."""
    while function is not None:
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        else:
            function = getattr(function, "__wrapped__", None)


def _module_of(function: Any) -> str:
    """Module of a function's code, of a class, or of the class of a callable object."""
    if isinstance(function, type):
        return function.__module__
    found = getattr(function, "__globals__", {}).get("__name__")
    return str(found or type(function).__module__)
