"""A batch's metadata: when HK plans it, what it reads for that, and what is captured in a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hk_sglang.attention.prefill import NO_STEP, HKPrefill
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import DECODE, FRESH, Row


def test_capture_is_the_parents(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured replays without Python: HK is in no graph, and counts no user's tokens."""
    monkeypatch.setattr("sglang.srt.model_executor.runner_utils.capture_mode.is_capture_mode", True)
    batch = Batch(Server(), MIXED, "TARGET_VERIFY")
    batch.check()
    assert counters.dummy == Tally(1, batch.num_tokens)
    assert not counters.served.calls
    assert not counters.fallbacks


def test_metadata_in_two_steps(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that splits its metadata for graphs: outside of them, once, before the layers."""
    calls: list[Any] = []
    parent = TorchNativeAttnBackend
    monkeypatch.delattr(parent, "init_forward_metadata")
    for name, note in {
        "out": lambda self, batch, in_capture=False: calls.append(("out", in_capture)),
        "in": lambda self, batch: calls.append(("in", self.hk._plan.tokens)),
    }.items():
        monkeypatch.setattr(parent, f"init_forward_metadata_{name}_graph", note, raising=False)
    server = Server()
    Batch(server, [EXTEND, FRESH]).check()
    assert calls == [("out", False), ("in", PREFILL)]
    assert counters.served == Tally(1, PREFILL)
    calls.clear()
    batch = Batch(server, [EXTEND, FRESH])
    server.backend.init_forward_metadata_out_graph(batch.metadata, in_capture=True)
    assert calls == [("out", True)]


def test_nothing_waits_for_the_device(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan reads lengths from the host's lists: none of its tensors is asked for a value."""
    batch = Batch(Server([{}, {"sliding_window_size": 7}], windows=(1,)), MIXED)
    hk: HKPrefill = batch.server.backend.hk

    def read(self: torch.Tensor, *args: Any) -> Any:
        raise AssertionError("a tensor was read on the host")

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, read)
    with hk.planned(batch.metadata):
        pass
    assert hk._plan is not None
    assert hk._plan.tokens == PREFILL


@pytest.mark.parametrize("mode", ["DECODE", "IDLE"])
def test_decode_has_no_plan(counters: RouteCounters, mode: str) -> None:
    """It is the parent's, and is not counted: it is no prefill. Nor is that of the batch before."""
    server = Server()
    Batch(server, MIXED).check()
    batch = Batch(server, [DECODE, Row(1, 20)], mode, seed=1)
    batch.server.backend.init_forward_metadata(batch.metadata)
    assert batch.server.backend.hk._plan is None
    if mode == "DECODE":
        batch.check()
    assert counters.served == Tally(1, PREFILL)
    assert not counters.fallbacks


def test_a_layer_met_after_the_batch_was_planned(counters: RouteCounters) -> None:
    """No other layer is HK's, so that the batch has no step; the next one has."""
    server = Server()
    server.backend.hk._layers.clear()
    Batch(server, MIXED).check()
    fell_back(counters, NO_STEP, PREFILL)
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)


def test_page_tables_are_read_with_the_metadata(counters: RouteCounters) -> None:
    """SGLang's scheduler may change them while the layers run."""
    batch = Batch(Server([{}, {"sliding_window_size": 15}], windows=(1,)), [EXTEND, FRESH])
    batch.server.backend.init_forward_metadata(batch.metadata)
    batch.server.tables.req_to_token.zero_()
    batch.server.pool.full_to_swa_index_mapping.zero_()
    for index, mask in enumerate(({}, {"sliding_window": 16})):
        found, expected = batch.call(index).double(), batch.expected(index, **mask)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


# -- HK breaks: the parent computes, with the pool as it leaves it


def broken_pool(server: Server, patch: pytest.MonkeyPatch) -> None:
    server.backend.hk.cache._known.clear()
    patch.setattr("hk_sglang.attention.caches.read_pool", lambda *_, **__: 1 / 0)


def broken_layer(server: Server, patch: pytest.MonkeyPatch) -> None:
    """One that the model did not show when the server started cannot be judged."""
    server.backend.hk._layers.clear()
    patch.delattr(server.model.layers[0], "use_irope")


def broken_plan(server: Server, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hk_sglang.attention.batch.page_slots", lambda *_: torch.zeros(1) + "a slot")


@pytest.mark.parametrize(
    ("damage", "error", "tokens"),
    [
        (broken_pool, "ZeroDivisionError: division by zero", PREFILL),
        (broken_layer, "AttributeError", PREFILL),
        (broken_plan, "TypeError", PREFILL + 2),
    ],
)
def test_an_error(
    counters: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: Any,
    error: str,
    tokens: int,
) -> None:
    server = Server()
    damage(server, monkeypatch)
    Batch(server, MIXED).check()
    (why,) = counters.fallbacks
    assert why.startswith(f"HK failed: {error}")
    fell_back(counters, why, tokens)
    assert routes.verdict("attention").why == why
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
