"""A check of the attention route's counters after a batch that HK left to the engine."""

from __future__ import annotations

from hk_backend.routing.routes import RouteCounters, Tally


def fell_back(counters: RouteCounters, why: str, tokens: int, calls: int = 1) -> None:
    """Hold that HK computed nothing and left just these calls to the engine, for this reason."""
    assert dict(counters.fallbacks) == {why: Tally(calls, calls * tokens)}
    assert counters.served == Tally(0, 0)
