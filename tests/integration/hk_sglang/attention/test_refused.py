"""Servers, layers, batches and calls that stay SGLang's own, each with its reason.

HK_STRICT makes an error of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.hk_attention import NO_PLAN, HKAttention
from hk_sglang.attention.server import refuse_server
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.cuda_graph_config import Backend, CudaGraphConfig, PhaseConfig

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from hk_backend.terms.verdict import SERVED, refused
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention.batch import MIXED, NUM_HEADS, PREFILL, Batch, Server
from tests.integration.hk_sglang.attention.drafter import drafter
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import FRESH

# -- servers

DETERMINISTIC, UNIFIED = "enable_deterministic_inference", SimpleNamespace(is_translating=True)


@pytest.mark.parametrize(
    ("flags", "runner", "why"),
    [
        ({"attn_cp_size": 2, "tp_size": 2}, {}, "context parallelism"),
        ({"dcp_size": 2, "tp_size": 2}, {}, "decode context parallelism"),
        ({"enable_two_batch_overlap": True}, {}, "two-batch overlap"),
        ({"enable_pdmux": True}, {}, "prefill and decode multiplexed on one device"),
        ({DETERMINISTIC: True}, {}, "--enable-deterministic-inference: not proven for HK"),
        ({}, drafter("DFLASH"), "a draft model"),
        ({}, drafter("FROZEN_KV_MTP"), "a draft model"),
        ({"enable_multi_layer_eagle": True}, drafter("EAGLE"), "a draft model"),
        ({}, {"use_mla_backend": True}, "latent attention"),
        ({}, {"kv_index_translator": UNIFIED}, "a unified memory pool"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_servers(
    counters: RouteCounters,
    published: Callable[..., None],
    flags: dict[str, Any],
    runner: dict[str, Any],
    why: str,
) -> None:
    published(**flags)
    assert refusal(changes=runner) == why


def refusal(**server: Any) -> str:
    """Why HK does not serve a server's prefill, whose backend must then be SGLang's own."""
    made = Server(**server)
    assert type(made.backend) is TorchNativeAttnBackend
    why = refuse_server(made.name, made.runner)
    return why or routes.verdict("attention").why


def test_unknown_parents(
    counters: RouteCounters, stand_ins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK knows neither the parent's name nor the arguments that its method takes."""
    assert refusal(name="dsa") == "attention backend dsa"
    routes.reset()
    monkeypatch.setattr(TorchNativeAttnBackend, "forward_extend", lambda self, batch: None)
    assert "(self, batch), expected (self, q, k, v, layer" in refusal()


@pytest.mark.parametrize("backend", [Backend.FULL, Backend.BREAKABLE])
def test_prefill_in_graphs(
    counters: RouteCounters, published: Callable[..., None], backend: str
) -> None:
    """Prefill in graphs, which a user may ask for on a GPU, would replay without HK."""
    for prefill, why in ((backend, f"prefill in graphs ({backend})"), (Backend.DISABLED, "")):
        published(cuda_graph_config=CudaGraphConfig(prefill=PhaseConfig(backend=prefill)))
        runner = Server().runner
        runner.device = "cuda"
        assert refuse_server("torch_native", runner) == why


def test_a_broken_installation(
    counters: RouteCounters, environment: Environment, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """SGLang keeps its backend, and says why, if one of HK's packages cannot be imported."""
    monkeypatch.setitem(sys.modules, "hk_sglang.attention.backend", None)
    assert "HK cannot be loaded: ModuleNotFoundError" in refusal()
    assert "SGLang serves attention without HK: HK cannot be loaded" in caplog.text
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="HK cannot be loaded: ModuleNotFoundError"):
        Server()


# -- layers

BOTH_WAYS = AttentionType.DECODER_BIDIRECTIONAL


@pytest.mark.parametrize(
    ("arguments", "changes", "why"),
    [
        ({"attn_type": AttentionType.ENCODER_ONLY}, {}, "attention type encoder_only"),
        ({"attn_type": BOTH_WAYS}, {}, "attention type decoder_bidirectional"),
        ({"use_irope": True}, {}, "chunked local attention"),
        ({"pos_encoding_mode": "ROPE_LLAMA"}, {}, "position encoding ROPE_LLAMA"),
        ({"logit_cap": 2.0, "logit_capping_method": "xai"}, {}, "logits capped by xai"),
        ({}, {"xai_temperature_len": 8}, "a temperature that depends on the position"),
        ({"v_head_dim": 32}, {}, "values of 32 channels, keys of 64"),
        ({"logit_cap": -1.0}, {}, "logits_soft_cap -1.0 is negative or not finite"),
        ({"is_cross_attention": True}, {}, "cross attention"),
    ],
)
def test_layers(
    counters: RouteCounters,
    environment: Environment,
    arguments: dict[str, Any],
    changes: dict[str, Any],
    why: str,
) -> None:
    """HK leaves one layer beside another that it serves. HK_STRICT stops the server for it."""
    server = Server([{}, arguments])
    layer = server.model.layers[1]
    for name, value in changes.items():
        setattr(layer, name, value)
    hk: HKAttention = server.backend.hk
    hk._layers.pop(layer)
    assert hk._layers[layer].refusal == why
    batch = Batch(server, [FRESH])
    server.backend.init_forward_metadata(batch.metadata)
    batch.call(0)
    assert counters.served.calls == 1
    q, k, v = (torch.cat(t) for t in batch._new(1))
    v = v[..., : layer.v_head_dim]
    assert hk.attend(q.flatten(1), k, v, layer, batch.metadata, True, {}) is None
    assert dict(counters.fallbacks) == {why: Tally(1, FRESH.query)}
    hk._layers.pop(layer)
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="attention would fall back"):
        hk._layers[layer]


# -- batches

ITEMS = "multi_item_delimiter_indices"


@pytest.mark.parametrize(
    ("mode", "changes", "why"),
    [
        ("TARGET_VERIFY", {}, "speculative verification"),
        ("DRAFT_EXTEND_V2", {}, "drafting"),
        ("SPLIT_PREFILL", {}, "prefill split over layers"),
        ("DLLM_EXTEND", {}, "diffusion"),
        ("PREBUILT", {}, "forward mode PREBUILT"),
        ("EXTEND", {ITEMS: [torch.tensor([1])]}, "several items scored in one prompt"),
        ("EXTEND", {"decision_layouts": [None, [1]]}, "several decisions in one prompt"),
        ("EXTEND", {"attn_cp_metadata": object()}, "context parallelism"),
        ("EXTEND", {"tbo_parent_token_range": (0, 3)}, "two-batch overlap"),
        ("EXTEND", {"mha_return_lse": True}, "log-sum-exp asked for"),
        ("EXTEND", {"extend_prefix_lens_cpu": None}, "no sequence lengths on the host"),
    ],
)
def test_batches(counters: RouteCounters, mode: str, changes: dict[str, Any], why: str) -> None:
    batch = Batch(Server(), MIXED, mode)
    vars(batch.metadata).update(changes)
    batch.check()
    fell_back(counters, why, PREFILL)


def test_an_encoder_in_front(counters: RouteCounters) -> None:
    batch = Batch(Server(), [FRESH])
    batch.metadata.encoder_lens = torch.tensor([0])
    batch.check()
    fell_back(counters, "an encoder's tokens in front of the prompt", FRESH.query)


def test_metadata_of_another_batch(counters: RouteCounters) -> None:
    """The parent computes a batch without metadata of its own. HK never takes another batch's."""
    server = Server()
    server.backend.init_forward_metadata(Batch(server, [FRESH]).metadata)
    batch = Batch(server, MIXED)
    found = batch.call()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    fell_back(counters, NO_PLAN.refusal, batch.num_tokens)


# -- calls


def test_no_keys(counters: RouteCounters) -> None:
    """A layer without keys of its own reads another layer's cache."""
    batch = Batch(Server(), MIXED)
    batch._write(0, [row.length for row in batch.rows])
    (found,) = batch.run(k=None, v=None)
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    fell_back(counters, "no keys handed over", PREFILL)


@pytest.mark.parametrize(("queries", "keys"), [(-1, -1), (None, -1)])
def test_tokens_of_another_batch(
    counters: RouteCounters, queries: int | None, keys: int | None
) -> None:
    """HK would read past the end of the tensors that it is handed."""
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
    (found,) = batch.run(q=query)
    with batch.server.alone():
        assert torch.equal(found, batch.run(q=query)[0])
    fell_back(counters, "query in torch.bfloat16, keys in torch.float32", FRESH.query)


def test_a_mask_of_the_models_own(counters: RouteCounters) -> None:
    """Gemma 3 puts a mask on its backend's metadata, once that is made and before layers run."""
    batch = Batch(Server(), MIXED)
    batch.server.backend.init_forward_metadata(batch.metadata)
    batch.server.backend.forward_metadata = SimpleNamespace(custom_mask=torch.ones(1))
    batch.call()
    fell_back(counters, "a mask of the model's own", PREFILL)


def test_arguments_that_hk_or_the_device_does_not_have(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent gets such arguments as they came."""
    handed: list[Any] = []
    stock = TorchNativeAttnBackend.forward_extend

    @wraps(stock)
    def taking(*args: Any, **named: Any) -> Any:
        handed.append({name: named.pop(name) for name in (*given, "sinks") if name in named})
        return stock(*args, **named)

    def ask(request: Any) -> Any:
        return refused("sinks: not in the kernels") if request.has_sinks else SERVED

    monkeypatch.setattr("hk_sglang.attention.layers.ask", ask)
    server, given = Server(), {"score_mod": "a modification", "aux_tensors": None}
    monkeypatch.setattr(TorchNativeAttnBackend, "forward_extend", taking)
    sinks = {"sinks": torch.zeros(NUM_HEADS)}
    for more in (given, sinks):
        Batch(server, MIXED).run(**more)
        assert handed.pop() == more
    left = ("argument score_mod of the call", "sinks: not in the kernels")
    assert dict(counters.fallbacks) == dict.fromkeys(left, Tally(1, PREFILL))
    Batch(server, MIXED).run(score_mod=None, aux_tensors=None)
    assert counters.served == Tally(1, PREFILL)
