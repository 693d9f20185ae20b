"""The answer of an envelope, the set of requests that an operator serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of an envelope: whether a request is served and, if not, why."""

    ok: bool
    why: str = ""

    def __bool__(self) -> bool:
        return self.ok


SERVED = Verdict(True)


def refused(why: str) -> Verdict:
    """Makes a negative verdict. `why` is one line, shown to the user and used as a counter
    label."""
    return Verdict(False, why)
