"""A batch's metadata: when HK plans it, what it reads for that, and what is captured in a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hk_sglang.attention.prefill import NO_STEP, HKPrefill
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from hk_backend.routing.routes import RouteCounters, Tally
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
    base = TorchNativeAttnBackend.__base__
    monkeypatch.delattr(TorchNativeAttnBackend, "init_forward_metadata")
    monkeypatch.setattr(
        TorchNativeAttnBackend,
        "init_forward_metadata_out_graph",
        lambda self, batch, in_capture=False: calls.append(("out", in_capture)),
        raising=False,
    )
    monkeypatch.setattr(
        TorchNativeAttnBackend,
        "init_forward_metadata_in_graph",
        lambda self, batch: calls.append(("in", self.hk._plan.tokens)),
        raising=False,
    )
    assert base is not None
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


def test_decode_has_no_plan(counters: RouteCounters) -> None:
    server = Server()
    for mode in (ForwardMode.DECODE, ForwardMode.IDLE):
        batch = Batch(server, [DECODE, Row(1, 20)], mode.name)
        server.backend.init_forward_metadata(batch.metadata)
        assert server.backend.hk._plan is None


def test_a_layer_met_after_the_batch_was_planned(counters: RouteCounters) -> None:
    """No other layer is HK's, so that the batch has no step; the next one has."""
    server = Server()
    server.backend.hk._layers.clear()
    Batch(server, MIXED).check()
    fell_back(counters, NO_STEP, PREFILL)
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)
