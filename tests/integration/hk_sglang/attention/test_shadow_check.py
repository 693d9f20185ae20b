"""HK_CHECK in SGLang: above the tolerance the route goes off, and the result is the parent's."""

from __future__ import annotations

from collections.abc import Callable

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.shadow_check import *  # noqa: F403


def test_a_right_result_in_a_window(
    counters: RouteCounters, environment: Callable[..., None]
) -> None:
    environment(HK_CHECK="1")
    Batch(Server([{"sliding_window_size": 7}]), MIXED).check(sliding_window=8)
    assert counters.served == Tally(1, PREFILL)
    assert counters.checked_calls == 1
    assert 0 < counters.max_check_error < 1e-5
