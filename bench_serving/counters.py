"""Reads the routing counters of a server from its `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from hk_backend.engine.evidence import SLOWER
from hk_backend.routing.routes import Tally


@dataclass
class RouteTotals:
    """Counters of one route's prefill work, by who computed it."""

    served: Tally = field(default_factory=Tally)
    fallbacks: dict[str, Tally] = field(default_factory=dict)
    dummy: Tally = field(default_factory=Tally)
    captured: Tally = field(default_factory=Tally)
    layers_left: dict[str, int] = field(default_factory=dict)
    """Number of layers left to the engine when its model was loaded, by reason."""

    @property
    def routed_share(self) -> float:
        """Share of prefill tokens that HK computed; 0 if it computed none, for any reason."""
        missed = sum(tally.tokens for tally in self.fallbacks.values())
        total = self.served.tokens + missed
        return self.served.tokens / total if total else 0.0

    @property
    def share_of_hks(self) -> float:
        """Share that HK computed of the prefill tokens that were meant for HK.

        Tokens that the engine computes faster, by measurement, do not count; 1: all are such.
        """
        left = {why for why in self.fallbacks if why.startswith(SLOWER)}
        reasons = {*self.fallbacks, *self.layers_left}
        if not self.served.calls and reasons and all(why.startswith(SLOWER) for why in reasons):
            return 1.0
        others = {why: tally for why, tally in self.fallbacks.items() if why not in left}
        return RouteTotals(self.served, others).routed_share


def read(url: str) -> dict[str, RouteTotals]:
    """Read the counters of the server at `url`, by route; empty: it is stock and has none."""
    response = httpx.get(f"{url}/metrics", timeout=30)
    response.raise_for_status()
    return parse(response.text)


def parse(text: str) -> dict[str, RouteTotals]:
    """Parse the counters in the text of `/metrics`, by route."""
    routes: dict[str, RouteTotals] = {}
    for family in text_string_to_metric_families(text):
        if family.name == "hk_backend_layers":
            _parse_layers(family.samples, routes)
        field_name = {"hk_backend_calls": "calls", "hk_backend_tokens": "tokens"}.get(family.name)
        if field_name is None:
            continue
        for sample in family.samples:
            if not sample.name.endswith("_total"):
                continue
            totals = routes.setdefault(sample.labels["route"], RouteTotals())
            tally = _tally(totals, sample.labels["outcome"], sample.labels["reason"])
            setattr(tally, field_name, getattr(tally, field_name) + int(sample.value))
    return routes


def _parse_layers(samples: Iterable[Any], routes: dict[str, RouteTotals]) -> None:
    for sample in samples:
        reason = sample.labels.get("reason")
        if sample.name.endswith("_total") and reason:
            totals = routes.setdefault(sample.labels["route"], RouteTotals())
            totals.layers_left[reason] = int(sample.value)


def add(parts: Iterable[dict[str, RouteTotals]]) -> dict[str, RouteTotals]:
    """The sum of several servers' counters."""
    total: dict[str, RouteTotals] = {}
    for part in parts:
        for route, totals in part.items():
            into = total.setdefault(route, RouteTotals())
            pairs = [
                (into.served, totals.served),
                (into.dummy, totals.dummy),
                (into.captured, totals.captured),
            ]
            pairs += [
                (into.fallbacks.setdefault(why, Tally()), tally)
                for why, tally in totals.fallbacks.items()
            ]
            for left, right in pairs:
                left.calls += right.calls
                left.tokens += right.tokens
            for why, layers in totals.layers_left.items():
                into.layers_left[why] = into.layers_left.get(why, 0) + layers
    return total


def share_between(before: dict[str, RouteTotals], after: dict[str, RouteTotals]) -> float:
    """Share of prefill tokens that HK computed between two readings, over all routes."""

    def tokens(routes: dict[str, RouteTotals]) -> tuple[int, int]:
        served = sum(totals.served.tokens for totals in routes.values())
        missed = sum(t.tokens for totals in routes.values() for t in totals.fallbacks.values())
        return served, served + missed

    (served_before, all_before), (served, total) = tokens(before), tokens(after)
    return (served - served_before) / (total - all_before) if total > all_before else 0.0


def is_all_left_as_slower(before: dict[str, RouteTotals], after: dict[str, RouteTotals]) -> bool:
    """Whether the engine computed all prefill tokens between two readings because it was measured
    to be faster at them."""
    reasons = {
        why
        for name, totals in after.items()
        for why, tally in totals.fallbacks.items()
        if tally.tokens > before.get(name, RouteTotals()).fallbacks.get(why, Tally()).tokens
    }
    faster_without_hk = bool(reasons) and all(why.startswith(SLOWER) for why in reasons)
    return faster_without_hk and share_between(before, after) == 0


def _tally(totals: RouteTotals, outcome: str, reason: str) -> Tally:
    if outcome == "fallback":
        return totals.fallbacks.setdefault(reason, Tally())
    tally: Tally = getattr(totals, outcome)
    return tally
