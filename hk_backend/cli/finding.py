"""The result of one of doctor's checks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

Severity = Literal["problem", "note", "skipped", "fact"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    `severity`: a problem stops a route. A note narrows a route or an engine's use. A skipped check
    could not look. A fact is reported by a check that passed.
    `what`: the result in words. `remedy`: a command to paste; empty: there is none.
    `check`: the check's name, which doctor adds.
    """

    severity: Severity
    what: str
    remedy: str = ""
    check: str = ""


problem = partial(Finding, "problem")
note = partial(Finding, "note")
skipped = partial(Finding, "skipped")
fact = partial(Finding, "fact")
