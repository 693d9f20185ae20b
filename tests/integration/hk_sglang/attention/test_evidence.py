"""Attention that is measured beside the parent, in the server's own pool, which is as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention import prefill
from hk_sglang.attention.layers import layers_of

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import Batch, Server
from tests.integration.hk_sglang.attention.engine import prompt
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import FRESH, Row
from tests.integration.shared.evidence import Bench, assert_same_attention

KIND = "attention float32, 4/2 heads of 64, causal, pages of 16"
WINDOW: dict[str, Any] = {"sliding_window_size": 20}
MASK: dict[str, Any] = {"sliding_window": 21}


# -- both sides


@pytest.mark.parametrize("windows", [(), (0,)])
def test_a_window(counters: RouteCounters, bench: Bench, windows: tuple[int, ...]) -> None:
    """The layer's keys lie in the only pool, or in one of window layers with its own slots."""
    server = Server(layers=(WINDOW,), windows=windows)
    assert_same_attention(bench, partial(prompt, server), **MASK)


@pytest.mark.parametrize("page_size", [1, 64])
def test_pages(counters: RouteCounters, bench: Bench, page_size: int) -> None:
    assert_same_attention(bench, partial(prompt, Server(page_size=page_size)))


def test_page_tables_are_as_they_were(counters: RouteCounters, bench: Bench) -> None:
    server = Server(layers=({}, WINDOW), windows=(1,))
    assert len(bench.rows) == 2
    assert not server.tables.req_to_token.any()
    assert not server.pool.full_to_swa_index_mapping.any()


def test_lengths_are_those_that_a_server_takes(
    counters: RouteCounters, published: Callable[..., None], bench: Bench
) -> None:
    """A prompt is no longer than the context, here 256 tokens, nor than a step."""
    Server()
    published(chunked_prefill_size=40)
    Server(dtype=torch.bfloat16)
    published(chunked_prefill_size=16)
    Server(dtype=torch.float16)
    assert bench.rows == [(32, 128), (32,), (16,)]


# -- the answer


def test_each_kind_of_layer_is_decided_by_itself(counters: RouteCounters, bench: Bench) -> None:
    """One batch has layers of the parent's, and another one of HK's."""
    bench.ours = lambda rows: 4.0 if len(bench.rows) == 1 else 1.0
    server = Server(layers=({}, WINDOW, {}))
    batch = Batch(server, [FRESH])
    full, window, again = batch.run()
    check_rows(full, batch.made(0))
    check_rows(window, batch.made(1), **MASK)
    check_rows(again, batch.made(2))
    assert counters.served == Tally(1, FRESH.query)
    [(why, tally)] = counters.fallbacks.items()
    assert why.startswith(f"faster without HK: {KIND}: 32 rows: ")
    assert tally == Tally(2, 2 * FRESH.query)


def test_a_kind_by_steps_beside_another(counters: RouteCounters, bench: Bench) -> None:
    """The parent has one kind in a short step, and none in a long one."""
    bench.ours = lambda rows: 4.0 if rows < 128 and len(bench.rows) == 1 else 1.0
    server = Server(layers=({}, WINDOW))
    for rows, served in (([FRESH], 1), ([Row(128)], 3), ([FRESH], 4)):
        batch = Batch(server, rows)
        full, window = batch.run()
        check_rows(full, batch.made(0))
        check_rows(window, batch.made(1), **MASK)
        assert counters.served.calls == served


def test_layers_of_one_kind_are_measured_once(counters: RouteCounters, bench: Bench) -> None:
    Server(layers=({}, {}))
    assert len(bench.rows) == 1


# -- what fails, and when nothing is measured


def test_a_failing_parent(
    counters: RouteCounters, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's layers stay its own, with the reason, and HK goes on."""
    from sglang.srt.layers.attention import torch_native_backend

    with monkeypatch.context() as patch:
        patch.setattr(torch_native_backend, "scaled_dot_product_attention", lambda *_, **__: 1 / 0)
        server = Server()
    Batch(server, [FRESH]).check()
    why = f"{KIND}: not measured: ZeroDivisionError: division by zero"
    fell_back(counters, why, FRESH.query)


def test_nothing_is_measured_beside_a_request(
    counters: RouteCounters, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has a row of the page table that a contest would take."""
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool

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


def test_a_probe_is_not_measured(counters: RouteCounters, bench: Bench) -> None:
    """A probe's parent computes nothing, which would be faster."""
    from hk_sglang.attention import probe

    shape = SimpleNamespace(num_heads=4, num_kv_heads=2, head_size=64, dtype=torch.float32)
    [forward] = probe.layers(((16, 0),), shape, 1)
    forward()
    assert not bench.rows
    assert counters.served == Tally(1, 16)
