"""Helpers for tests of broken contracts: a contract's check must fail and name what it met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hk_backend.terms.verdict import Verdict


def nothing(self: Any) -> None:
    """A method that lacks every parameter."""


def assert_refused(check: Callable[[], Verdict], named: str) -> None:
    verdict = check()
    assert not verdict
    assert named in verdict.why


def short(value: Any) -> str:
    """The name of a parameter in a test's id."""
    return value if isinstance(value, str) else getattr(value, "__name__", "")
