"""The result of one of doctor's checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["problem", "note", "skipped", "fact"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    `severity`: a problem stops a route. A note narrows a route or an engine's use. A skipped check
    could not look. A fact is reported by a check that passed.
    `what`: the result in words. `remedy`: a command to paste; empty: there is none.
    """

    check: str
    severity: Severity
    what: str
    remedy: str


def problem(check: str, what: str, remedy: str) -> Finding:
    return Finding(check, "problem", what, remedy)


def skipped(check: str, why: str) -> Finding:
    return Finding(check, "skipped", why, "")


def note(check: str, what: str, remedy: str) -> Finding:
    return Finding(check, "note", what, remedy)


def fact(check: str, what: str) -> Finding:
    return Finding(check, "fact", what, "")
