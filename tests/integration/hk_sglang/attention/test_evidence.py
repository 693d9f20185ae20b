"""Attention that is measured beside the parent, in the server's own pool, which is as it was."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hk_sglang.attention import prefill
from hk_sglang.attention.layers import layers_of
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import Batch, Server
from tests.integration.hk_sglang.attention.engine import prompt
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import FRESH, Row
from tests.integration.shared.evidence import Bench, assert_same_attention

KIND = "attention float32, 4/2 heads of 64, causal, pages of 16"
WINDOW: dict[str, Any] = {"sliding_window_size": 20}
MASK: dict[str, Any] = {"sliding_window": 21}


@pytest.mark.parametrize(
    ("facts", "mask"),
    [
        ({"layers": (WINDOW,)}, MASK),
        ({"layers": (WINDOW,), "windows": (0,)}, MASK),
        ({"page_size": 1}, {}),
        ({"page_size": 64}, {}),
    ],
    ids=str,
)
def test_both_sides_compute_a_prompt(
    counters: RouteCounters, bench: Bench, facts: dict[str, Any], mask: dict[str, Any]
) -> None:
    """The layer's keys lie in the only pool, or in one of window layers with its own slots."""
    server = Server(**facts)
    assert_same_attention(bench, partial(prompt, server), **mask)
    assert not server.tables.req_to_token.any()
    if server.windows:
        assert not server.pool.full_to_swa_index_mapping.any()


def test_each_kind_of_layer_is_decided_by_itself(counters: RouteCounters, bench: Bench) -> None:
    """One batch has layers of the parent's, and another one of HK's: here those of one kind, which
    is measured once, are the parent's in a short step and HK's in a long one."""
    bench.ours = lambda rows: 4.0 if rows < 128 and len(bench.rows) == 1 else 1.0
    server = Server(layers=({}, WINDOW, {}))
    assert len(bench.rows) == 2
    for rows, served in (([FRESH], 1), ([Row(128)], 4), ([FRESH], 5)):
        batch = Batch(server, rows)
        full, window, again = batch.run()
        check_rows(full, batch.made(0))
        check_rows(window, batch.made(1), **MASK)
        check_rows(again, batch.made(2))
        assert counters.served.calls == served
    [(why, tally)] = counters.fallbacks.items()
    assert why.startswith(f"faster without HK: {KIND}: 32 rows: ")
    assert tally == Tally(4, 4 * FRESH.query)


def test_nothing_is_measured_beside_a_request(
    counters: RouteCounters, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has a row of the page table that a contest would take."""
    monkeypatch.setattr(ReqToTokenPool, "available_size", lambda self: self.size - 1)
    Batch(Server(), [FRESH]).check()
    assert not bench.rows
    [why] = counters.fallbacks
    assert why == f"{KIND}: not measured: RuntimeError: requests run already"


def test_layers_that_the_model_did_not_have(
    counters: RouteCounters, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is measured in the middle of a batch; one of a known kind is HK's at once."""
    with monkeypatch.context() as patch:
        patch.setattr(prefill, "layers_of", lambda model: layers_of(model)[:1])
        server = Server(layers=({}, {}, WINDOW))
    Batch(server, [FRESH]).run()
    assert len(bench.rows) == 1
    assert counters.served == Tally(2, 2 * FRESH.query)
    [why] = counters.fallbacks
    assert why.endswith("the model did not have the layer when it was loaded")
