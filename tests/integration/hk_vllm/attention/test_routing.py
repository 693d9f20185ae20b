"""Builder and implementation together, over every order of rows: the right rows, the right result.

The parent is vLLM's real CPU backend; the expectation is the reference over keys that were
never in a cache. A row taken for another kind reads other keys, and its numbers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hk_vllm.attention.builder import Plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

from hk_backend.engine.rows import SPECULATIVE, RowSplit, split_rows
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_vllm.attention.batch import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    Batch,
    Layer,
    vllm_config,
    with_drafts,
)
from tests.integration.shared.attention.rows import (
    DECODE,
    DRAFTS,
    EXTEND,
    FRESH,
    KINDS,
    VERIFY,
    Row,
    orders,
    prefill_tokens,
)
from tests.integration.shared.attention.split import UNREADABLE, Known

DEFAULT = Known()
ORDERS = orders(KINDS, longest=7, sampled=400)


@pytest.fixture(scope="module")
def layer(hk_cpu: Any) -> Layer:
    return Layer(hk_cpu, config=with_drafts(vllm_config(), DRAFTS))


class Parts:
    """Which tokens HK had written when the parent was called, and when both were done."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._output = torch.empty(0)
        self.before_parent: list[bool] | None = None
        parent = CPUAttentionBackendImpl.forward

        def forward(impl: Any, *args: Any, **kwargs: Any) -> Any:
            self.before_parent = self._written()
            mine = self._output[self.before_parent].clone()
            result = parent(impl, *args, **kwargs)
            assert torch.equal(self._output[self.before_parent][: len(mine)], mine)
            return result

        patch.setattr(CPUAttentionBackendImpl, "forward", forward)

    def run(self, batch: Batch, **changes: Any) -> list[bool]:
        """Run `batch`; which tokens HK wrote."""
        self._output, self.before_parent = batch.output, None
        batch.run(**changes)
        return self._written() if self.before_parent is None else self.before_parent

    def _written(self) -> list[bool]:
        found: list[bool] = (~self._output.isnan().all(-1).all(-1)).tolist()
        return found


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(monkeypatch)


def check(
    layer: Layer, rows: Sequence[Row], parts: Parts, known: Known = DEFAULT, seed: int = 0
) -> None:
    """Run `rows` through `layer` and check result, rows and counters."""
    routes.reset()
    batch = Batch(layer, rows, seed)
    written = parts.run(batch, **({} if known.says else {"is_prefilling": None}))
    batch.check()
    mine = known.hks(rows)
    tokens = [its for row, its in zip(rows, mine, strict=True) for _ in range(row.query)]
    assert written == tokens + [False] * (len(batch.query) - len(tokens))
    found = routes.counters("attention")
    hks = [row.query for row, its in zip(rows, mine, strict=True) if its and row.query > 1]
    assert found.served == Tally(int(any(mine)), sum(hks))
    assert sum(t.tokens for t in found.fallbacks.values()) == prefill_tokens(rows) - sum(hks)
    assert set(found.fallbacks) <= {SPECULATIVE, *([] if known.readable else [UNREADABLE])}
    assert not found.dummy.calls


@pytest.mark.parametrize("says", [True, False])
def test_every_order_of_rows(layer: Layer, parts: Parts, says: bool) -> None:
    for rows in ORDERS:
        check(layer, rows, parts, Known(says))


def test_every_order_of_rows_over_an_unreadable_cache(
    layer: Layer, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with forms of CPU_ATTN for other machines: extends stay, fresh rows do not."""
    monkeypatch.setattr(layer.builder, "_hk_cache_refusal", UNREADABLE)
    for rows in ORDERS:
        check(layer, rows, parts, Known(readable=False))


@pytest.mark.parametrize("kind", ["mine", "theirs"])
@pytest.mark.parametrize("rows", [(VERIFY, FRESH), (FRESH, DECODE, EXTEND)], ids=str)
def test_a_row_of_the_other_ones_is_seen(
    layer: Layer, parts: Parts, monkeypatch: pytest.MonkeyPatch, rows: tuple[Row, ...], kind: str
) -> None:
    """The check itself: a decode row that HK takes, or a prefill row that it leaves, fails it."""

    def broken(*arguments: Any) -> RowSplit:
        split = split_rows(*arguments)
        mine, theirs = split.mine.copy(), split.theirs.copy()
        moved = int((theirs if kind == "mine" else mine).argmax())
        mine[moved], theirs[moved] = kind == "mine", kind == "theirs"
        return replace(split, mine=mine, theirs=theirs)

    check(layer, (*rows, FRESH), parts)
    monkeypatch.setattr("hk_vllm.attention.builder.split_rows", broken)
    with pytest.raises(AssertionError):
        check(layer, (*rows, FRESH), parts)


longest = BLOCK_SIZE * MAX_BLOCKS // 2
any_rows = st.lists(st.builds(Row, st.integers(0, longest), st.integers(0, longest)), max_size=5)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(any_rows.filter(lambda rows: any(row.query for row in rows)), st.integers(0, 99))
def test_any_lengths(layer: Layer, parts: Parts, rows: list[Row], seed: int) -> None:
    check(layer, rows, parts, seed=seed)


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
    Batch(Layer(hk_cpu, dtype, arguments=arguments), [EXTEND, FRESH, Row(20)]).run_and_check(**mask)
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
    Batch(layer, [EXTEND], seed=1).run_and_check()
    assert counters.served.calls == 2


def test_prefix_of_a_larger_query(layer: Layer, counters: RouteCounters) -> None:
    """Rows in the order that Model Runner V2 can send: [decode, fresh, extend]."""
    Batch(layer, [Row(1, 84), Row(3), Row(100, 84)]).run_and_check()
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
