"""What the attention route counts of a batch that is the engine's."""

from __future__ import annotations

from hk_backend.routing.routes import RouteCounters, Tally


def fell_back(counters: RouteCounters, why: str, tokens: int, calls: int = 1) -> None:
    """Just these calls were left to the engine, for this reason, and HK computed nothing."""
    assert dict(counters.fallbacks) == {why: Tally(calls, calls * tokens)}
    assert counters.served == Tally(0, 0)
