"""HK_CHECK, a route that is off, HK that breaks: the engine computes, and why is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hk_backend
from hk_backend.devices.cpu.device import cpu_device
from hk_backend.ops import attention_prefill
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.engine import AttentionEngine
from tests.integration.shared.attention.rows import FRESH, prefill_tokens

packed_and_paged = pytest.mark.parametrize("paged", [False, True], ids=["packed", "paged"])


@packed_and_paged
def test_a_wrong_result_is_the_engines(
    attention: AttentionEngine,
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    paged: bool,
) -> None:
    """2% are above the tolerance: the route goes off."""
    environment(HK_CHECK="1")
    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", scaled)
    layer, rows = attention.layer(), attention.MIXED if paged else [FRESH]
    for seed in range(3):
        attention.check(layer, rows, seed)
    why = routes.verdict("attention").why
    assert why.startswith("HK_CHECK: error 2.00e-02 exceeds the tolerance")
    assert "query lengths" in why
    fell_back(counters, why, prefill_tokens(rows), calls=3)
    assert counters.checked_calls == 1, "a route that is off is not checked"
    assert counters.max_check_error == pytest.approx(0.02, rel=1e-3)
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert why in error.getMessage()


def scaled(
    query: torch.Tensor, *, out: torch.Tensor, query_start_loc: torch.Tensor, **arguments: Any
) -> None:
    """The operator, 2% wrong on the tokens it computes."""
    attention_prefill(query, out=out, query_start_loc=query_start_loc, **arguments)
    out[query_start_loc[0] : query_start_loc[-1]] *= 1.02


def test_an_error_in_hk_and_a_route_that_was_switched_off(
    attention: AttentionEngine,
    counters: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The call that breaks and all after it are the engine's, with one error in the log."""

    def broken(*args: Any, out: Any, query_start_loc: Any, **kwargs: Any) -> None:
        out[query_start_loc[0] : query_start_loc[-1]] = 7.0
        raise RuntimeError("the extension is broken")

    layer, tokens = attention.layer(), prefill_tokens(attention.MIXED)
    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", broken)
    for seed in range(2):
        attention.check(layer, attention.MIXED, seed)
    why = "HK failed: RuntimeError: the extension is broken"
    fell_back(counters, why, tokens, calls=2)
    assert routes.verdict("attention").why == why
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert why in error.getMessage()
    routes.reset()
    routes.disable("attention", "switched off by hand")
    attention.check(layer, attention.MIXED)
    counters = routes.counters("attention")
    assert dict(counters.fallbacks) == {"switched off by hand": Tally(1, tokens)}


def test_an_extension_that_cannot_be_loaded(
    attention: AttentionEngine, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine computes, and the reason is the loader's; nothing failed, for nothing ran."""
    monkeypatch.delattr(hk_backend, "_cpu", raising=False)
    monkeypatch.setitem(sys.modules, "hk_backend._cpu", None)
    monkeypatch.setattr("hk_backend.devices.cpu_device", cpu_device.__wrapped__)
    attention.check(attention.layer(), attention.MIXED)
    (why,) = counters.fallbacks
    assert why.startswith("the extension hk_backend._cpu cannot be loaded (")
    fell_back(counters, why, prefill_tokens(attention.MIXED))
    assert not routes.is_disabled("attention")
