"""A stand-in for another plugin, which exchanges functions of the engine."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.integration.shared.linear.engine import LinearEngine

THEIRS = f"another plugin's: {__name__}.observe"
in_both_orders = pytest.mark.parametrize("first", [False, True], ids=["after-hk", "before-hk"])


def exchanged(
    engine: LinearEngine, owner: Any, name: str, patch: pytest.MonkeyPatch, first: bool
) -> list[str]:
    """Install HK's route, and another plugin's function in place of the engine's.

    `first`: the other plugin comes before HK. Returns the names of the function's calls.
    """
    if not first:
        assert engine.register_linear() == ""
    calls, original = [], getattr(owner, name)

    @functools.wraps(original)
    def observe(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(*args, **kwargs)

    patch.setattr(owner, name, observe)
    if first:
        assert engine.register_linear() == ""
    return calls
