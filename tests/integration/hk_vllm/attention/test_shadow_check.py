"""HK_CHECK in vLLM: above the tolerance the route goes off, and the result is the parent's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.shared.attention.rows import FRESH
from tests.integration.shared.attention.shadow_check import *  # noqa: F403


def test_a_share_of_calls(
    hk_cpu: Any, counters: RouteCounters, environment: Callable[..., None]
) -> None:
    environment(HK_CHECK="0.25")
    batch = Batch(Layer(hk_cpu), [FRESH])
    metadata = batch.build()
    for _ in range(200):
        batch.forward(metadata)
    assert counters.served.calls == 200
    assert 25 < counters.checked_calls < 75
