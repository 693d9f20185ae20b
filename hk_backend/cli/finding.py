"""What a check of doctor finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["problem", "note", "skipped", "fact"]


@dataclass(frozen=True)
class Finding:
    """Something that stops a route (problem) or narrows it or an engine's use (note); or why a
    check could not look (skipped), or what a check that passed has to name (fact).

    `remedy` is a command, ready to paste, or empty if there is none.
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
