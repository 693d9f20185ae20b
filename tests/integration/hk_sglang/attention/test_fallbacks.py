"""Every reason for which a batch or a layer is the parent's, who computes; each is counted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.layers import ServedLayer
from hk_sglang.attention.prefill import NO_PLAN, NO_STEP, HKPrefill
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, NoOpMHATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from hk_backend.engine import evidence
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention.batch import (
    DECODE,
    EXTEND,
    FRESH,
    MIXED,
    NUM_HEADS,
    PREFILL,
    Batch,
    Row,
    Server,
)


def fell_back(counters: RouteCounters, why: str, tokens: int = PREFILL, calls: int = 1) -> None:
    assert dict(counters.fallbacks) == {why: Tally(calls, calls * tokens)}
    assert not counters.served.calls


def parents(batch: Batch, **changes: Any) -> torch.Tensor:
    """The output of the stock backend on `batch`."""
    backend = batch.server.backend
    wrapper, backend.__class__ = type(backend), TorchNativeAttnBackend
    try:
        (found,) = batch.run(**changes)
    finally:
        backend.__class__ = wrapper
    return found


# -- batches


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
    fell_back(counters, why)


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
    fell_back(counters, why)


def test_layers_that_sglang_computes_faster(
    counters: RouteCounters, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By measurement; unless the user has decided otherwise."""
    monkeypatch.setattr(evidence, "host_isa", lambda operator: "amx")
    environment(HK_EVIDENCE="use")
    Batch(Server(dtype=torch.bfloat16), MIXED).run()
    fell_back(counters, evidence.LOSSES[0].why)
    environment(HK_EVIDENCE="ignore")
    Batch(Server(dtype=torch.bfloat16), MIXED).run()
    assert counters.served == Tally(1, PREFILL)


def test_a_batch_that_sglang_computes_faster(
    counters: RouteCounters, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided batch by batch, by the longest prompt; its layers are HK's all the same."""
    monkeypatch.setattr(evidence, "host_isa", lambda operator: "avx512")
    environment(HK_EVIDENCE="use", HK_STRICT="1")
    server = Server()
    Batch(server, MIXED).check()
    fell_back(counters, evidence.LOSSES[1].why)
    Batch(server, [EXTEND, Row(128)]).check()
    assert counters.served == Tally(1, EXTEND.query + 128)


def test_an_encoder_in_front(counters: RouteCounters) -> None:
    batch = Batch(Server(), [FRESH])
    batch.metadata.encoder_lens = torch.tensor([0])
    batch.check()
    fell_back(counters, "an encoder's tokens in front of the prompt", FRESH.query)


def test_speculative_requests_in_a_mixed_batch(counters: RouteCounters) -> None:
    server = Server()
    batch = Batch(server, MIXED)
    batch.metadata.spec_algorithm = SpeculativeAlgorithm.EAGLE
    batch.check()
    fell_back(counters, "speculative requests in a mixed batch")
    # its prompts are HK's
    prompts = Batch(server, [EXTEND, FRESH])
    prompts.metadata.spec_algorithm = SpeculativeAlgorithm.EAGLE
    prompts.check()
    assert counters.served == Tally(1, PREFILL)


def test_metadata_of_another_batch(counters: RouteCounters) -> None:
    """A batch for which no metadata was made is computed by the parent, never with another's."""
    server = Server()
    server.backend.init_forward_metadata(Batch(server, [FRESH]).metadata)
    batch = Batch(server, MIXED)
    found = batch.call()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    fell_back(counters, NO_PLAN, batch.num_tokens)


# -- calls


def test_no_keys(counters: RouteCounters) -> None:
    """A layer that reads another's cache."""
    batch = Batch(Server(), MIXED)
    batch._write(0, [row.length for row in batch.rows])
    (found,) = batch.run(k=None, v=None)
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    fell_back(counters, "no keys handed over")


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
    fell_back(counters, "queries or keys of other tokens than the batch's")


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
    fell_back(counters, "a mask of the model's own")


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

    monkeypatch.setattr(TorchNativeAttnBackend, "forward_extend", taking)
    server = Server()
    Batch(server, MIXED).run(score_mod="a modification", aux_tensors=None)
    assert handed == [("a modification", None)]
    fell_back(counters, "argument score_mod of the call")
    Batch(server, MIXED).run(score_mod=None, aux_tensors=None)
    assert counters.served == Tally(1, PREFILL)


def test_sinks_that_the_device_does_not_have(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hk_backend.terms.verdict import SERVED, refused

    def ask(request: Any) -> Any:
        return refused("sinks: not in the kernels") if request.has_sinks else SERVED

    monkeypatch.setattr("hk_sglang.attention.layers.ask", ask)
    stock = TorchNativeAttnBackend.forward_extend
    monkeypatch.setattr(
        TorchNativeAttnBackend,
        "forward_extend",
        lambda self, q, k, v, layer, forward_batch, save_kv_cache=True, sinks=None: stock(
            self, q, k, v, layer, forward_batch, save_kv_cache
        ),
    )
    Batch(Server(), MIXED).run(sinks=torch.zeros(NUM_HEADS))
    fell_back(counters, "sinks: not in the kernels")


# -- layers


@pytest.mark.parametrize(
    ("arguments", "changes", "why"),
    [
        ({"attn_type": AttentionType.ENCODER_ONLY}, {}, "attention type encoder_only"),
        (
            {"attn_type": AttentionType.DECODER_BIDIRECTIONAL},
            {},
            "attention type decoder_bidirectional",
        ),
        ({"use_irope": True}, {}, "chunked local attention"),
        ({"pos_encoding_mode": "ROPE_LLAMA"}, {}, "position encoding ROPE_LLAMA"),
        (
            {"logit_cap": 2.0, "logit_capping_method": "xai"},
            {},
            "logits capped by xai",
        ),
        ({}, {"xai_temperature_len": 8}, "a temperature that depends on the position"),
        ({"v_head_dim": 32}, {}, "values of 32 channels, keys of 64"),
        ({"logit_cap": -1.0}, {}, "logits_soft_cap -1.0 is negative or not finite"),
    ],
)
def test_layers(
    counters: RouteCounters,
    environment: Callable[..., None],
    arguments: dict[str, Any],
    changes: dict[str, Any],
    why: str,
) -> None:
    """Beside a layer that is served. Strict: the same reason stops the server."""
    server = Server([{}, arguments])
    refused = server.model.layers[1]
    for name, value in changes.items():
        setattr(refused, name, value)
    server.backend.hk._layers.pop(refused)
    hk: HKPrefill = server.backend.hk
    assert hk._served(refused).refusal == why
    batch = Batch(server, [FRESH])
    server.backend.init_forward_metadata(batch.metadata)
    batch.call(0)
    assert counters.served.calls == 1
    q, k, v = (torch.cat(t) for t in batch._new(1))
    v = v[..., : refused.v_head_dim]
    assert hk.attend(q.flatten(1), k, v, refused, batch.metadata, True, {}) is None
    assert dict(counters.fallbacks) == {why: Tally(1, FRESH.query)}
    hk._layers.pop(refused)
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="attention would fall back"):
        hk._served(refused)


def test_cross_attention(counters: RouteCounters) -> None:
    assert judged({"is_cross_attention": True}).refusal == "cross attention"


def test_head_sizes(counters: RouteCounters) -> None:
    why = "head_size 20 is not a multiple of 8 up to 256"
    server = Server(head_size=20)
    Batch(server, MIXED).check()
    fell_back(counters, why)


def judged(arguments: dict[str, Any], **server: Any) -> ServedLayer:
    made = Server([arguments], **server)
    (served,) = made.backend.hk._layers.values()
    return served


# -- pools


def test_pools_that_hk_does_not_know(counters: RouteCounters) -> None:
    class Other(MHATokenToKVPool):
        pass

    server = Server()
    server.pool.__class__ = Other
    assert rejudged(server) == "KV pool Other"
    server.pool.__class__ = NoOpMHATokenToKVPool
    assert rejudged(server) == "KV pool NoOpMHATokenToKVPool"


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("post_capture_active", True, "a KV pool whose memory comes later"),
        ("layer_shard_enabled", True, "a KV pool whose memory comes later"),
        ("kv_cache_layout", "page_major", "KV pool layout page_major"),
        ("quant_method", SimpleNamespace(name="fp4"), "KV cache quantised by fp4"),
        ("dtype", torch.float16, "keys and values in torch.float16 with queries in torch.float32"),
        (
            "dtype",
            torch.float8_e4m3fnuz,
            "keys and values in torch.float8_e4m3fnuz with queries in torch.float32",
        ),
    ],
)
def test_pools(counters: RouteCounters, field: str, value: Any, why: str) -> None:
    server = Server()
    setattr(server.pool, field, value)
    assert rejudged(server) == why


def test_a_window_pool_of_another_kind(counters: RouteCounters) -> None:
    server = Server([{}, {}], windows=(1,))
    server.pool.swa_kv_pool.__class__ = NoOpMHATokenToKVPool
    assert rejudged(server) == ""
    assert rejudged(server, 1) == "KV pool NoOpMHATokenToKVPool"


def rejudged(server: Server, index: int = 0) -> str:
    layer = server.model.layers[index]
    server.backend.hk._layers.pop(layer)
    served: ServedLayer = server.backend.hk._served(layer)
    return served.refusal


def test_a_pool_that_does_not_read_back(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A writer that HK does not know: cached tokens are the parent's, fresh ones are not."""
    from hk_sglang.attention import pools

    def other_way_round(tensor: torch.Tensor, page_size: int) -> torch.Tensor:
        return tensor[: len(tensor) // page_size * page_size].unflatten(0, (-1, page_size)).flip(1)

    monkeypatch.setattr(pools, "_pages", other_way_round)
    server = Server()
    assert "requests with cached tokens are left to torch_native" in caplog.text
    batch = Batch(server, MIXED)
    (found,) = batch.run()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form: written keys")
    Batch(server, [FRESH]).check()
    assert counters.served == Tally(1, FRESH.query)


@pytest.mark.parametrize("page_size", [1, 16])
def test_the_proof_leaves_no_trace(counters: RouteCounters, page_size: int) -> None:
    """At construction, before any request, in the page that no request owns."""
    server = Server([{}, {}], page_size=page_size, windows=(1,))
    for part in server.parts():
        for buffer in (*part.k_buffer, *part.v_buffer):
            assert not buffer.any()


def test_pages_that_the_device_does_not_read(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the GPU kernels refuse pages of one token: prompts without cached tokens stay HK's."""
    from hk_backend.terms.verdict import SERVED, refused

    why = "block_size 1: the gfx950 kernels read multiples of 16"
    monkeypatch.setattr(
        "hk_sglang.attention.layers.ask",
        lambda request: refused(why) if request.block_size == 1 else SERVED,
    )
    server = Server(page_size=1)
    Batch(server, [EXTEND]).check()
    fell_back(counters, why, EXTEND.query)
    Batch(server, [FRESH]).check()
    assert counters.served == Tally(1, FRESH.query)


def test_a_pool_bound_again_at_the_same_address(counters: RouteCounters) -> None:
    """A smaller pool may begin where the larger one did: slots behind its end are not HK's."""
    server = Server()
    hk, pool = server.backend.hk, server.backend.token_to_kv_pool
    whole = hk._paged(0)
    key, value = pool.get_kv_buffer(0)
    assert hk._paged(0) is whole
    pool.get_kv_buffer = lambda layer_id: (key[: len(key) // 2], value[: len(value) // 2])
    assert hk._paged(0).num_blocks == whole.num_blocks // 2


# -- what breaks in HK


@pytest.mark.parametrize(
    "broken",
    ["hk_backend.engine.attention.attention_prefill", "hk_sglang.attention.prefill.read_pool"],
)
def test_an_error_in_hk(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: Any, broken: str
) -> None:
    """The parent computes, the route is off, said once; the pool is as the parent leaves it."""
    server = Server()
    server.backend.hk._caches.clear()

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the extension is broken")

    monkeypatch.setattr(broken, fail)
    for _ in range(2):
        Batch(server, MIXED).check()
    why = "HK failed: RuntimeError: the extension is broken"
    fell_back(counters, why, calls=2)
    assert routes.verdict("attention").why == why
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_a_layer_that_cannot_be_judged(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the model did not show when the server started."""
    server = Server()
    server.backend.hk._layers.clear()
    monkeypatch.delattr(server.model.layers[0], "use_irope")
    batch = Batch(server, MIXED)
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("HK failed: AttributeError")
    assert routes.is_disabled("attention")


def test_no_device(counters: RouteCounters, environment: Callable[..., None]) -> None:
    """Each call is the parent's, for the layer's own reason: nothing fails, for nothing runs."""
    environment(HK_DEVICE="hip")
    batch = Batch(Server([{}, {}]), MIXED)
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("HK_DEVICE=hip: ")
    assert counters.fallbacks[why] == Tally(2, 2 * PREFILL)
    assert not routes.is_disabled("attention")


def test_a_layer_met_after_the_batch_was_planned(counters: RouteCounters) -> None:
    """No other layer is HK's, so that the batch has no step; the next one has."""
    server = Server()
    server.backend.hk._layers.clear()
    Batch(server, MIXED).check()
    fell_back(counters, NO_STEP)
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)


def test_an_error_in_the_plan(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hk_sglang.attention.batch.page_slots", lambda *args: torch.zeros(1) + "a slot"
    )
    batch = Batch(Server(), MIXED)
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("HK failed: TypeError")
    assert counters.fallbacks[why] == Tally(1, batch.num_tokens)


def test_a_wrong_result(
    counters: RouteCounters, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK_CHECK: found on the first call, and the parent's output is what the model gets."""
    from hk_backend.ops import attention_prefill

    def scaled(query: torch.Tensor, *, out: torch.Tensor, **arguments: Any) -> None:
        attention_prefill(query, out=out, **arguments)
        out *= 1.02

    environment(HK_CHECK="1")
    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", scaled)
    Batch(Server(), MIXED).check()
    (why,) = counters.fallbacks
    assert "HK_CHECK: error 2.00e-02 exceeds the tolerance" in why
    assert routes.is_disabled("attention")
    assert counters.checked_calls == 1


def test_a_right_result_and_hk_check(
    counters: RouteCounters, environment: Callable[..., None]
) -> None:
    environment(HK_CHECK="1")
    Batch(Server([{"sliding_window_size": 7}]), MIXED).check(sliding_window=8)
    assert counters.served == Tally(1, PREFILL)
    assert counters.checked_calls == 1
    assert 0 < counters.max_check_error < 1e-5


def test_a_route_that_is_off(counters: RouteCounters) -> None:
    server = Server()
    routes.disable("attention", "switched off by hand")
    Batch(server, MIXED).check()
    fell_back(counters, "switched off by hand")


# -- graphs


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
    Batch(server, MIXED).check()
    assert calls == [("out", False), ("in", PREFILL)]
    assert counters.served == Tally(1, PREFILL)
    calls.clear()
    batch = Batch(server, MIXED)
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
    hk.forget()
    hk.plan(batch.metadata)
    assert hk._plan is not None
    assert hk._plan.tokens == PREFILL


def test_decode_has_no_plan(counters: RouteCounters) -> None:
    server = Server()
    for mode in (ForwardMode.DECODE, ForwardMode.IDLE):
        batch = Batch(server, [DECODE, Row(1, 20)], mode.name)
        server.backend.init_forward_metadata(batch.metadata)
        assert server.backend.hk._plan is None
