"""State that every engine plugin shares: counters per route, the kill switch, the report.

A *route* is one engine layer sent to an HK operator. Each call of a routed layer moves exactly one
counter: calls that HK served, or fallbacks by reason. Calls without a user's tokens have two
counters of their own. Replaying a graph is no call: no Python runs, and no counter moves.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from hk_backend.terms.verdict import SERVED, Verdict, refused

Outcome = Literal["served", "fallback", "dummy", "captured"]


class Number(Protocol):
    """A number that is shown elsewhere as soon as it is set, such as a `ctypes.c_double`."""

    value: float


@dataclass(slots=True)
class Tally:
    """Number of calls and tokens under one label.

    Args:
        shown: both numbers in the file that `/metrics` reads (metrics.py); None: in no file.
    """

    calls: int = 0
    tokens: int = 0
    shown: tuple[Number, Number] | None = field(default=None, compare=False, repr=False)

    def add(self, tokens: int) -> None:
        self.calls += 1
        self.tokens += tokens
        if self.shown is not None:
            calls, all_tokens = self.shown
            calls.value, all_tokens.value = self.calls, self.tokens


def _tallies() -> defaultdict[str, Tally]:
    return defaultdict(Tally)


@dataclass(slots=True)
class RouteCounters:
    """The counters of one route in this process.

    Args:
        served: prefill work that HK computed.
        fallbacks: prefill work that went to the parent, by reason.
        dummy: profiling and warm-up, kept apart as it has no user's tokens.
        captured: work that HK computes whenever a graph is replayed, counted once at capture.
        layers: layers that HK serves, if the route is decided per layer while a model loads.
        layers_left: layers that such a route left to the parent, by reason. Their calls never reach
            HK and are not counted.
        checked_calls: calls that HK_CHECK compared.
        unchecked_calls: calls that HK_CHECK could not see.
    """

    served: Tally = field(default_factory=Tally)
    fallbacks: defaultdict[str, Tally] = field(default_factory=_tallies)
    dummy: Tally = field(default_factory=Tally)
    captured: Tally = field(default_factory=Tally)
    layers: int = 0
    layers_left: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    max_check_error: float = 0.0
    checked_calls: int = 0
    unchecked_calls: int = 0

    def tally(self, outcome: Outcome, reason: str) -> Tally:
        """The tally that counts a call of this outcome; `reason` is that of a fallback."""
        if outcome == "fallback":
            return self.fallbacks[reason]
        tally: Tally = getattr(self, outcome)
        return tally

    def routed_share(self) -> float:
        """Share of prefill tokens that HK computed, in [0, 1]; 1.0 if there were none."""
        missed = sum(tally.tokens for tally in self.fallbacks.values())
        total = self.served.tokens + missed
        return self.served.tokens / total if total else 1.0


class Routes:
    """All routes of this process: which are off and why, and their counters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, RouteCounters] = {}
        self._off: dict[str, str] = {}

    def counters(self, route: str) -> RouteCounters:
        """The counters of `route`, made on first use."""
        found = self._counters.get(route)
        if found is None:
            with self._lock:
                found = self._counters.setdefault(route, RouteCounters())
        return found

    def disable(self, route: str, why: str) -> bool:
        """Switches `route` off for the rest of this process; the first reason is kept.

        Returns whether the route was on.
        """
        with self._lock:
            was_on = route not in self._off
            self._off.setdefault(route, why)
        return was_on

    def is_disabled(self, route: str) -> bool:
        return route in self._off

    def verdict(self, route: str) -> Verdict:
        why = self._off.get(route)
        return SERVED if why is None else refused(why)

    def reset(self) -> None:
        """Forgets everything (for tests)."""
        self.forget_counters()
        self._off.clear()

    def forget_counters(self) -> None:
        """Counts from zero in a forked child, as its parent has counted what it inherited.

        Routes that are off stay off, as whatever broke them broke in the child's memory, too.
        """
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._counters = {}

    def report(self) -> dict[str, Any]:
        """Plain data for logs and JSON: `{route: {on, why, calls, tokens, fallbacks, ...}}`."""
        return {
            name: {
                "on": not self.is_disabled(name),
                "why": self._off.get(name, ""),
                "calls": counters.served.calls,
                "tokens": counters.served.tokens,
                "routed_share": counters.routed_share(),
                "fallbacks": {
                    why: {"calls": tally.calls, "tokens": tally.tokens}
                    for why, tally in sorted(counters.fallbacks.items())
                },
                "layers": counters.layers,
                "layers_left": dict(sorted(counters.layers_left.items())),
                "dummy_calls": counters.dummy.calls,
                "dummy_tokens": counters.dummy.tokens,
                "captured_calls": counters.captured.calls,
                "captured_tokens": counters.captured.tokens,
                "checked_calls": counters.checked_calls,
                "unchecked_calls": counters.unchecked_calls,
                "max_check_error": counters.max_check_error,
            }
            for name in sorted({*self._counters, *self._off})
            for counters in [self.counters(name)]
        }


routes = Routes()
"""The instance of this process."""

os.register_at_fork(after_in_child=routes.forget_counters)
