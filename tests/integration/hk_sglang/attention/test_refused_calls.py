"""Calls that are the parent's, of a layer and a batch that HK would serve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import (
    MIXED,
    NUM_HEADS,
    PREFILL,
    Batch,
    Server,
)
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import FRESH


def parents(batch: Batch, **changes: Any) -> torch.Tensor:
    """The output of the stock backend on `batch`."""
    backend = batch.server.backend
    wrapper, backend.__class__ = type(backend), TorchNativeAttnBackend
    try:
        (found,) = batch.run(**changes)
    finally:
        backend.__class__ = wrapper
    return found


def test_no_keys(counters: RouteCounters) -> None:
    """A layer that reads another's cache."""
    batch = Batch(Server(), MIXED)
    batch._write(0, [row.length for row in batch.rows])
    (found,) = batch.run(k=None, v=None)
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    fell_back(counters, "no keys handed over", PREFILL)


@pytest.mark.parametrize(("queries", "keys"), [(-1, -1), (None, -1)])
def test_tokens_of_another_batch(
    counters: RouteCounters, queries: int | None, keys: int | None
) -> None:
    """HK would read past the end of what it is handed."""
    batch = Batch(Server(), MIXED)
    batch.server.backend.init_forward_metadata(batch.metadata)
    q, k, v = (torch.cat(t) for t in batch._new(0))
    layer = batch.server.model.layers[0]
    q, k, v = q.flatten(1)[:queries], k[:keys], v[:keys]
    assert batch.server.backend.hk.attend(q, k, v, layer, batch.metadata, True, {}) is None
    fell_back(counters, "queries or keys of other tokens than the batch's", PREFILL)


def test_another_dtype(counters: RouteCounters) -> None:
    batch = Batch(Server(), [FRESH])
    query = torch.cat(batch.queries[0]).flatten(1).bfloat16()
    parents_own = parents(batch, q=query)
    (found,) = batch.run(q=query)
    assert torch.equal(found, parents_own)
    fell_back(counters, "query in torch.bfloat16, keys in torch.float32", FRESH.query)


def test_a_mask_of_the_models_own(counters: RouteCounters) -> None:
    """As Gemma 3 puts it on its backend's metadata, between the metadata and the layers."""
    batch = Batch(Server(), MIXED)
    batch.server.backend.init_forward_metadata(batch.metadata)
    batch.server.backend.forward_metadata = SimpleNamespace(custom_mask=torch.ones(1))
    batch.call()
    fell_back(counters, "a mask of the model's own", PREFILL)


def test_an_argument_that_hk_does_not_have(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to the parent as it came."""
    handed: list[Any] = []
    stock = TorchNativeAttnBackend.forward_extend

    def taking(
        self: Any,
        q: Any,
        k: Any,
        v: Any,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        score_mod: Any = None,
        aux_tensors: Any = None,
    ) -> Any:
        handed.append((score_mod, aux_tensors))
        return stock(self, q, k, v, layer, forward_batch, save_kv_cache)

    server = Server()
    monkeypatch.setattr(TorchNativeAttnBackend, "forward_extend", taking)
    Batch(server, MIXED).run(score_mod="a modification", aux_tensors=None)
    assert handed == [("a modification", None)]
    fell_back(counters, "argument score_mod of the call", PREFILL)
    Batch(server, MIXED).run(score_mod=None, aux_tensors=None)
    assert counters.served == Tally(1, PREFILL)


def test_sinks_that_the_device_does_not_have(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hk_backend.terms.verdict import SERVED, refused

    def ask(request: Any) -> Any:
        return refused("sinks: not in the kernels") if request.has_sinks else SERVED

    monkeypatch.setattr("hk_sglang.attention.layers.ask", ask)
    server, stock = Server(), TorchNativeAttnBackend.forward_extend
    monkeypatch.setattr(
        TorchNativeAttnBackend,
        "forward_extend",
        lambda self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None: stock(
            self, q, k, v, layer, forward_batch, save_kv_cache
        ),
    )
    Batch(server, MIXED).run(sinks=torch.zeros(NUM_HEADS))
    fell_back(counters, "sinks: not in the kernels", PREFILL)
