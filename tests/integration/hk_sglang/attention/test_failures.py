"""The route is off, or HK breaks: the parent computes, and why is counted and said once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.counted import fell_back


def test_an_error_in_reading_the_pool(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The pool is as the parent leaves it."""
    server = Server()
    server.backend.hk.cache._known.clear()

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the extension is broken")

    monkeypatch.setattr("hk_sglang.attention.caches.read_pool", fail)
    for _ in range(2):
        Batch(server, MIXED).check()
    why = "HK failed: RuntimeError: the extension is broken"
    fell_back(counters, why, PREFILL, calls=2)
    assert routes.verdict("attention").why == why
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_a_layer_that_cannot_be_judged(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the model did not show when the server started."""
    server = Server()
    server.backend.hk._layers.clear()
    monkeypatch.delattr(server.model.layers[0], "use_irope")
    batch = Batch(server, MIXED)
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("HK failed: AttributeError")
    assert routes.is_disabled("attention")


def test_an_error_in_the_plan(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hk_sglang.attention.batch.page_slots", lambda *args: torch.zeros(1) + "a slot"
    )
    batch = Batch(Server(), MIXED)
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("HK failed: TypeError")
    assert counters.fallbacks[why] == Tally(1, batch.num_tokens)


def test_a_checked_result_in_a_window(
    counters: RouteCounters, environment: Callable[..., None]
) -> None:
    environment(HK_CHECK="1")
    Batch(Server([{"sliding_window_size": 7}]), MIXED).check(sliding_window=8)
    assert counters.served == Tally(1, PREFILL)
    assert counters.checked_calls == 1
    assert 0 < counters.max_check_error < 1e-5
