"""Builder and implementation together, over every order of rows: the right rows, the right result.

The parent is vLLM's real CPU backend; the expectation is the reference over keys that were
never in a cache. A row taken for another kind reads other keys, and its numbers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hk_vllm.attention.builder import Plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hk_backend.ops import attention_prefill
from hk_backend.routing.routes import RouteCounters, routes
from tests.integration.hk_vllm.attention.batch import BLOCK_SIZE, EXTEND, MAX_BLOCKS, Batch, Layer
from tests.integration.hk_vllm.attention.test_rows import KINDS, UNREADABLE, hk_rows
from tests.integration.shared.attention.rows import FRESH, Row

Spy = list[torch.Tensor]


@pytest.fixture(scope="module")
def layer(hk_cpu: Any) -> Layer:
    return Layer(hk_cpu)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Which tokens HK wrote, a mask per call, taken before the parent runs."""
    masks: Spy = []

    def spy(query: torch.Tensor, *, out: torch.Tensor, **arguments: Any) -> Any:
        before = out.isnan().all(-1).all(-1)
        result = attention_prefill(query, out=out, **arguments)
        masks.append(before & ~out.isnan().all(-1).all(-1))
        return result

    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", spy)
    return masks


def check(layer: Layer, rows: Sequence[Row], written: Spy, readable: bool, seed: int = 0) -> None:
    """Run `rows` through `layer` and check result, rows and counters."""
    routes.reset()
    written.clear()
    batch = Batch(layer, rows, seed)
    batch.run()
    batch.check()
    mine = hk_rows(list(rows), readable)
    expected = [i in mine for i, row in enumerate(rows) for _ in range(row.query)]
    if mine:
        assert written[0].tolist() == expected + [False] * (len(batch.query) - len(expected))
    else:
        assert not written
    found = routes.counters("attention")
    prefill = sum(row.query for row in rows if row.query > 1)
    assert found.served.tokens == sum(rows[i].query for i in mine if rows[i].query > 1)
    assert found.served.calls == bool(mine)
    assert found.served.tokens + sum(t.tokens for t in found.fallbacks.values()) == prefill
    assert not found.dummy.calls


def every_order(longest: int) -> list[tuple[Row, ...]]:
    orders = (rows for n in range(1, longest + 1) for rows in product(KINDS, repeat=n))
    return [rows for rows in orders if any(row.query for row in rows)]


def test_every_order_of_rows(layer: Layer, written: Spy) -> None:
    for rows in every_order(4):
        check(layer, rows, written, readable=True)


def test_every_order_of_rows_over_an_unreadable_cache(
    layer: Layer, written: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the AMX form of CPU_ATTN: extends stay with the parent, fresh rows do not."""
    monkeypatch.setattr(layer.builder, "_hk_cache_refusal", UNREADABLE)
    for rows in every_order(4):
        check(layer, rows, written, readable=False)


longest = BLOCK_SIZE * MAX_BLOCKS // 2
any_rows = st.lists(st.builds(Row, st.integers(0, longest), st.integers(0, longest)), max_size=5)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(any_rows.filter(lambda rows: any(row.query for row in rows)), st.integers(0, 99))
def test_any_lengths(layer: Layer, written: Spy, rows: list[Row], seed: int) -> None:
    check(layer, rows, written, readable=True, seed=seed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("arguments", "mask"),
    [
        ({"per_layer_sliding_window": 8}, {"sliding_window": 8}),
        ({"logits_soft_cap": 2.0}, {"logits_soft_cap": 2.0}),
        (
            {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]},
            {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])},
        ),
        (
            {"sinks": torch.tensor([1.0, -1.0, 3.0, 0.0])},
            {"sinks": torch.tensor([1.0, -1.0, 3.0, 0.0])},
        ),
        (
            {"sinks": torch.tensor([1.0, -1.0, 3.0, 0.0], dtype=torch.bfloat16)},
            {"sinks": torch.tensor([1.0, -1.0, 3.0, 0.0])},
        ),
    ],
    ids=["window", "softcap", "alibi", "sinks", "sinks in bfloat16"],
)
def test_masks_reach_the_operator(
    hk_cpu: Any,
    counters: RouteCounters,
    dtype: torch.dtype,
    arguments: dict[str, Any],
    mask: dict[str, Any],
) -> None:
    """vLLM's arguments mean to HK what they mean to vLLM."""
    batch = Batch(Layer(hk_cpu, dtype, arguments=arguments), [EXTEND, FRESH, Row(20)])
    batch.run()
    batch.check(**mask)
    assert counters.served.tokens == 31


@pytest.mark.parametrize(
    "arguments", [{}, {"per_layer_sliding_window": 8}, {"logits_soft_cap": 2.0}]
)
def test_same_as_stock(hk_cpu: Any, stock_cpu: Any, arguments: dict[str, Any]) -> None:
    rows = [Row(1, 40), Row(1, 3), EXTEND, FRESH, Row(33, 64)]
    stock = Batch(Layer(stock_cpu, arguments=arguments), rows).run()
    mine = Batch(Layer(hk_cpu, arguments=arguments), rows).run()
    torch.testing.assert_close(mine, stock, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_another_cache_is_read_where_it_lies(hk_cpu: Any, counters: RouteCounters) -> None:
    """The engine may bind another tensor to a layer (sleep mode, profiling)."""
    layer = Layer(hk_cpu)
    Batch(layer, [EXTEND]).run()
    layer.kv_cache = torch.empty_like(layer.kv_cache)
    batch = Batch(layer, [EXTEND], seed=1)
    batch.run()
    batch.check()
    assert counters.served.calls == 2


def test_prefix_of_a_larger_query(layer: Layer, counters: RouteCounters) -> None:
    """Rows in the order that Model Runner V2 can send: [decode, fresh, extend]."""
    batch = Batch(layer, [Row(1, 84), Row(3), Row(100, 84)])
    batch.run()
    batch.check()
    assert counters.served.tokens == 103


def of_step(plan: Plan, **facts: torch.Tensor) -> dict[str, Any]:
    assert plan.step is not None
    return {"step": replace(plan.step, **facts)}


@pytest.mark.parametrize(
    "misread",
    [
        lambda plan: {"reads_cache": False},
        lambda plan: of_step(plan, seq_lens=plan.step.seq_lens - 1),
        lambda plan: of_step(plan, block_table=plan.step.block_table.flip(0)),
        lambda plan: of_step(plan, query_start_loc=plan.step.query_start_loc[[0, 0, -1]]),
    ],
    ids=["cached prefix ignored", "last key dropped", "another row's blocks", "shifted queries"],
)
def test_a_misread_row_is_seen(
    layer: Layer, counters: RouteCounters, misread: Callable[[Plan], dict[str, Any]]
) -> None:
    """The check itself: other facts about a row must fail it.

    Both rows have so many cached keys that the operator cannot tell the facts from true ones.
    """
    batch = Batch(layer, [EXTEND, Row(5, 30)])
    metadata = batch.build()
    metadata.hk = replace(metadata.hk, **misread(metadata.hk))
    batch.forward(metadata)
    assert counters.served.calls == 1, "HK refused the call instead of computing it"
    with pytest.raises(AssertionError, match="out of bounds"):
        batch.check()
