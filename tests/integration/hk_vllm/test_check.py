"""HK_CHECK in vLLM: exceeds the tolerance the route goes off and the result is the parent's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend.ops import attention_prefill
from hk_backend.routing.routes import RouteCounters, Tally, routes
from hk_backend.routing.shadow_check import tolerance
from tests.integration.hk_vllm.batch import DECODE, EXTEND, FRESH, Batch, Layer

pytestmark = pytest.mark.usefixtures("small")

PREFILL = EXTEND.query + FRESH.query


def scaled(query: torch.Tensor, *, out: torch.Tensor, **arguments: Any) -> Any:
    """The operator, 2% wrong on the tokens it computes."""
    before = out.clone()
    attention_prefill(query, out=out, **arguments)
    out.copy_(torch.where(before.isnan() & ~out.isnan(), out * 1.02, before))


@pytest.mark.parametrize("rows", [[FRESH], [DECODE, EXTEND, FRESH]], ids=["packed", "paged"])
def test_a_right_result_is_hks(
    hk_cpu: Any, counters: RouteCounters, environment: Callable[..., None], rows: list[Any]
) -> None:
    environment(HK_CHECK="1")
    batch = Batch(Layer(hk_cpu), rows)
    batch.run()
    batch.check()
    assert counters.served.calls == counters.checked_calls == 1
    assert 0 < counters.max_check_error < tolerance(torch.float32)
    assert routes.verdict("attention")


@pytest.mark.parametrize("rows", [[FRESH], [DECODE, EXTEND, FRESH]], ids=["packed", "paged"])
def test_a_wrong_result_is_the_parents(
    hk_cpu: Any,
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    rows: list[Any],
) -> None:
    environment(HK_CHECK="1")
    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", scaled)
    layer = Layer(hk_cpu)
    for seed in range(3):
        batch = Batch(layer, rows, seed)
        batch.run()
        batch.check()
    why = routes.verdict("attention").why
    assert why.startswith("HK_CHECK: error 2.00e-02 exceeds the tolerance")
    assert "query lengths" in why
    tokens = sum(row.query for row in rows if row.query > 1)
    assert dict(counters.fallbacks) == {why: Tally(3, 3 * tokens)}
    assert counters.served == Tally(0, 0)
    assert counters.checked_calls == 1, "a route that is off is not checked"
    assert counters.max_check_error == pytest.approx(0.02, rel=1e-3)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert why in errors[0].getMessage()


def test_without_it_nothing_is_checked(
    hk_cpu: Any, counters: RouteCounters, environment: Callable[..., None]
) -> None:
    environment(HK_CHECK="0")
    Batch(Layer(hk_cpu), [FRESH]).run()
    assert counters.served.calls == 1
    assert not counters.checked_calls


def test_a_share_of_calls(
    hk_cpu: Any, counters: RouteCounters, environment: Callable[..., None]
) -> None:
    environment(HK_CHECK="0.25")
    layer = Layer(hk_cpu)
    batch = Batch(layer, [FRESH])
    metadata = batch.build()
    for _ in range(200):
        batch.forward(metadata)
    assert counters.served.calls == 200
    assert 25 < counters.checked_calls < 75
