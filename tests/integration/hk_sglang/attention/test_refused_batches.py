"""Batches and calls that are the parent's, who computes: each is counted by its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.prefill import NO_PLAN
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import MIXED, NUM_HEADS, PREFILL, Batch, Server
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import FRESH


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("TARGET_VERIFY", "speculative verification"),
        ("DRAFT_EXTEND_V2", "drafting"),
        ("SPLIT_PREFILL", "prefill split over layers"),
        ("DLLM_EXTEND", "diffusion"),
        ("PREBUILT", "forward mode PREBUILT"),
    ],
)
def test_modes(counters: RouteCounters, mode: str, why: str) -> None:
    Batch(Server(), MIXED, mode).check()
    fell_back(counters, why, PREFILL)


def test_verification_without_lengths_on_the_host(counters: RouteCounters) -> None:
    """Counted by its queries."""
    batch = Batch(Server(), MIXED, "TARGET_VERIFY")
    batch.metadata.extend_seq_lens_cpu = None
    batch.check()
    fell_back(counters, "speculative verification", batch.num_tokens)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("multi_item_delimiter_indices", [torch.tensor([1])], "several items scored in one prompt"),
        ("decision_layouts", [None, [1]], "several decisions in one prompt"),
        ("attn_cp_metadata", object(), "context parallelism"),
        ("tbo_parent_token_range", (0, 3), "two-batch overlap"),
        ("mha_return_lse", True, "log-sum-exp asked for"),
        ("extend_prefix_lens_cpu", None, "no sequence lengths on the host"),
    ],
)
def test_batches(counters: RouteCounters, field: str, value: Any, why: str) -> None:
    batch = Batch(Server(), MIXED)
    setattr(batch.metadata, field, value)
    batch.check()
    fell_back(counters, why, PREFILL)


def test_an_encoder_in_front(counters: RouteCounters) -> None:
    batch = Batch(Server(), [FRESH])
    batch.metadata.encoder_lens = torch.tensor([0])
    batch.check()
    fell_back(counters, "an encoder's tokens in front of the prompt", FRESH.query)


def test_speculative_requests_in_a_mixed_batch(counters: RouteCounters) -> None:
    """SGLang puts them into one as decode rows, whose drafts it leaves out: the parent's."""
    server = Server()
    batch = Batch(server, MIXED)
    batch.metadata.spec_algorithm = SpeculativeAlgorithm.EAGLE
    batch.check()
    assert counters.served == Tally(1, PREFILL)
    assert not counters.fallbacks


def test_metadata_of_another_batch(counters: RouteCounters) -> None:
    """A batch for which no metadata was made is computed by the parent, never with another's."""
    server = Server()
    server.backend.init_forward_metadata(Batch(server, [FRESH]).metadata)
    batch = Batch(server, MIXED)
    found = batch.call()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    fell_back(counters, NO_PLAN, batch.num_tokens)


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
