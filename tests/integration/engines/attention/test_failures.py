"""The route is off, or HK breaks: the engine computes, and why is counted and said once."""

from __future__ import annotations

from typing import Any

import pytest

from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.engine import AttentionEngine
from tests.integration.shared.attention.rows import prefill_tokens


def test_a_route_that_was_switched_off(attention: AttentionEngine, counters: RouteCounters) -> None:
    layer = attention.layer()
    routes.disable("attention", "switched off by hand")
    attention.check(layer, attention.MIXED)
    fell_back(counters, "switched off by hand", prefill_tokens(attention.MIXED))


def test_an_error_in_hk(
    attention: AttentionEngine,
    counters: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """This call and all after it are the engine's, with one error in the log."""

    def broken(*args: Any, out: Any, query_start_loc: Any, **kwargs: Any) -> None:
        out[query_start_loc[0] : query_start_loc[-1]] = 7.0
        raise RuntimeError("the extension is broken")

    layer = attention.layer()
    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", broken)
    for seed in range(2):
        attention.check(layer, attention.MIXED, seed)
    why = "HK failed: RuntimeError: the extension is broken"
    fell_back(counters, why, prefill_tokens(attention.MIXED), calls=2)
    assert routes.verdict("attention").why == why
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert why in error.getMessage()
