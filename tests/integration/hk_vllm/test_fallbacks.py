"""One test per reason to leave a call to the parent: the parent computes it, the reason is counted.

Counted are layer calls and prefill tokens. Where the parent can compute the batch its result is
checked against the reference; where it could not either, that it was called with the whole batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.attention import builder as builder_module
from hk_vllm.attention.cache_forms import FORMS
from hk_vllm.attention.layer import kv_dtype, layer_verdict
from hk_vllm.attention.rows import DECODES_BEHIND
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

from hk_backend.engine import cache_proof, evidence
from hk_backend.engine.cache_proof import UnknownCacheForm
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_vllm.batch import (
    DECODE,
    EXTEND,
    FRESH,
    NUM_HEADS,
    Batch,
    Layer,
    Row,
    vllm_config,
)

pytestmark = pytest.mark.usefixtures("small")

ROWS = [DECODE, EXTEND, FRESH]
PREFILL = EXTEND.query + FRESH.query


@pytest.fixture
def layer(hk_cpu: Any) -> Layer:
    return Layer(hk_cpu)


@pytest.fixture
def parent_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Metadata of each call of the parent's forward, which computes nothing."""
    calls: list[Any] = []

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(args[5])
        return args[6]

    monkeypatch.setattr(CPUAttentionBackendImpl, "forward", forward)
    return calls


def fell_back(counters: RouteCounters, why: str, tokens: int = PREFILL) -> None:
    """Exactly one call was left to the parent, for this reason, and HK computed nothing."""
    assert dict(counters.fallbacks) == {why: Tally(1, tokens)}
    assert counters.served == Tally(0, 0)


# -- a batch that is the parent's


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"causal": torch.ones(3, dtype=torch.int32)}, "not causal"),
        ({"causal": False}, "not causal"),
        ({"mm_req_doc_ranges": {1: [(0, 4)]}}, "bidirectional ranges in a multimodal prompt"),
        ({"rswa_prefix_lens": torch.tensor([1, 2, 3])}, "reference sliding window"),
        ({"encoder_seq_lens": torch.tensor([1, 2, 3])}, "cross attention"),
    ],
    ids=["causal per request", "bidirectional", "multimodal", "rswa", "encoder"],
)
def test_batches_only_the_parent_understands(
    layer: Layer,
    counters: RouteCounters,
    parent_calls: list[Any],
    changes: dict[str, Any],
    why: str,
) -> None:
    batch = Batch(layer, ROWS)
    metadata = batch.build(**changes)
    batch.forward(metadata)
    fell_back(counters, why)
    assert parent_calls == [metadata]


def test_without_multimodal_ranges_a_batch_is_routed(layer: Layer, counters: RouteCounters) -> None:
    batch = Batch(layer, ROWS)
    batch.run(mm_req_doc_ranges={})
    batch.check()
    assert counters.served.tokens == PREFILL


def test_decodes_behind_prefills(layer: Layer, counters: RouteCounters) -> None:
    batch = Batch(layer, [EXTEND, DECODE, FRESH])
    batch.run()
    batch.check()
    fell_back(counters, DECODES_BEHIND)


def test_lengths_only_on_the_device(layer: Layer, counters: RouteCounters) -> None:
    """Reading them would stall the stream; on CPU tensors there is nothing to stall."""
    batch = Batch(layer, ROWS)
    common = batch.common_metadata(seq_lens_cpu_upper_bound=None)
    batch.forward(layer.builder.build(0, common))
    batch.check()
    assert counters.served.tokens == PREFILL
    common.seq_lens = SimpleNamespace(device=torch.device("cuda"))
    why = builder_module.refuse_batch(common, fast_build=False)
    assert why == "no sequence lengths on the host"


@pytest.mark.parametrize("build", ["drafting", "fast"])
def test_drafting(layer: Layer, counters: RouteCounters, build: str) -> None:
    batch = Batch(layer, ROWS)
    if build == "drafting":
        metadata = layer.builder.build_for_drafting(batch.common_metadata(), 0)
    else:
        metadata = layer.builder.build(0, batch.common_metadata(), fast_build=True)
    batch.forward(metadata)
    batch.check()
    fell_back(counters, "drafting")


def with_drafts(config: Any, drafts: int, **more: Any) -> Any:
    speculative = SimpleNamespace(num_speculative_tokens=drafts, parallel_drafting=False, **more)
    object.__setattr__(config, "speculative_config", speculative)
    return config


def test_adaptive_verification(hk_cpu: Any, counters: RouteCounters) -> None:
    """The device trims drafts: where its rows begin is not what the host believes."""
    config = with_drafts(vllm_config(), drafts=3, enable_adaptive_verification=True)
    batch = Batch(Layer(hk_cpu, config=config), ROWS)
    batch.run()
    batch.check()
    fell_back(counters, "adaptive verification")


def test_speculative_verification(hk_cpu: Any, counters: RouteCounters) -> None:
    layer = Layer(hk_cpu, config=with_drafts(vllm_config(), drafts=3))
    batch = Batch(layer, [Row(4, 30), Row(4, 61)])
    batch.run(is_prefilling=torch.tensor([False, False]))
    batch.check()
    fell_back(counters, "speculative verification", 8)


def test_a_short_prefill_beside_drafts_is_no_verification(
    hk_cpu: Any, counters: RouteCounters
) -> None:
    layer = Layer(hk_cpu, config=with_drafts(vllm_config(), drafts=3))
    batch = Batch(layer, [Row(4, 30), Row(3)])
    batch.run(is_prefilling=torch.tensor([False, True]))
    batch.check()
    assert counters.served.tokens == 7


def test_extends_over_an_unreadable_cache(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tokens are counted as a fallback of a call that HK served otherwise."""
    monkeypatch.setattr(layer.builder, "_hk_cache_refusal", "unreadable")
    batch = Batch(layer, ROWS)
    batch.run()
    batch.check()
    assert counters.served == Tally(1, FRESH.query)
    assert dict(counters.fallbacks) == {"unreadable": Tally(1, EXTEND.query)}


@pytest.mark.parametrize(
    ("isa", "why"),
    [("vec", ""), ("vec16", ""), ("amx", "CPU_ATTN's amx cache form is not readable")],
)
def test_cache_forms_of_cpu_attn(isa: str, why: str) -> None:
    assert FORMS["CPU_ATTN"].refusal(SimpleNamespace(isa=isa)) == why


@pytest.mark.parametrize(
    ("parallel", "why"),
    [
        ({"decode_context_parallel_size": 2}, "decode context parallelism"),
        ({"prefill_context_parallel_size": 2}, "prefill context parallelism"),
        ({"enable_dbo": True, "data_parallel_size": 2}, "batches split into microbatches"),
    ],
    ids=["dcp", "pcp", "microbatches"],
)
def test_parallel_configurations(
    layer: Layer, counters: RouteCounters, parallel: dict[str, Any], why: str
) -> None:
    config = vllm_config(**parallel)
    layer.builder._hk_refusal = builder_module.refuse_parallel(config.parallel_config)
    batch = Batch(layer, ROWS)
    batch.run()
    batch.check()
    fell_back(counters, why)


# -- a layer that is the parent's


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"attn_type": "encoder_only"}, "attention type encoder_only"),
        (
            {"kv_sharing_target_layer_name": "model.layers.7.attn"},
            "keys and values of another layer's cache",
        ),
        ({"use_alibi_sqrt": True}, "square-root ALiBi"),
        ({"chunk_lookback": 0}, "chunked attention with lookback"),
        ({"chunk_lookback": 1}, "chunked attention with lookback"),
        ({"kv_cache_dtype": "int8_per_token_head"}, "kv_cache_dtype int8_per_token_head"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype fp8"),
        (
            {"kv_cache_dtype": "bfloat16"},
            "kv_cache_dtype bfloat16",
        ),
        ({"head_size": 12}, "head_size 12 is not a multiple of 8 up to 256"),
        ({"head_size": 512}, "head_size 512 is not a multiple of 8 up to 256"),
        ({"num_heads": 7}, "7 query heads are not a multiple of 2 KV heads"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_layers_outside_the_envelope(layer: Layer, changes: dict[str, Any], why: str) -> None:
    assert verdict_of(layer, changes) == why


def verdict_of(layer: Layer, changes: dict[str, Any]) -> str:
    """The verdict on `layer`, had vLLM constructed it with other arguments."""
    arguments = {
        "num_heads": NUM_HEADS,
        "head_size": 64,
        "num_kv_heads": 2,
        "alibi_slopes": None,
        "sliding_window": None,
        "kv_cache_dtype": "auto",
        "logits_soft_cap": None,
        "attn_type": "decoder",
        "kv_sharing_target_layer_name": None,
        **changes,
    }
    impl = SimpleNamespace(
        _hk_dtype=torch.float32,
        _hk_kv_dtype=kv_dtype(arguments["kv_cache_dtype"], torch.float32),
        hk_form=layer.impl.hk_form,
        dcp_world_size=changes.get("dcp", 1),
        pcp_world_size=changes.get("pcp", 1),
    )
    return layer_verdict(impl, arguments).why


@pytest.mark.parametrize("group", ["dcp", "pcp"])
def test_layers_of_a_context_parallel_group(layer: Layer, group: str) -> None:
    assert verdict_of(layer, {}) == ""
    assert verdict_of(layer, {group: 2}) == "context parallelism"


def test_batch_invariance(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", True)
    assert verdict_of(layer, {}) == "VLLM_BATCH_INVARIANT: not proven for HK"


def test_a_refused_layer_runs_on_the_parent(
    hk_cpu: Any, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", True)
    batch = Batch(Layer(hk_cpu), ROWS)
    batch.run()
    batch.check()
    fell_back(counters, "VLLM_BATCH_INVARIANT: not proven for HK")


def test_a_device_that_is_not_there(
    hk_cpu: Any,
    counters: RouteCounters,
    environment: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Said as a warning: the user asked for it by name."""
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    environment(HK_DEVICE="hip")
    batch = Batch(Layer(hk_cpu), ROWS)
    batch.run()
    batch.check()
    (why,) = counters.fallbacks
    assert "HK_DEVICE=hip" in why
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warned == [f"hk_backend: no attention layer is computed by HK: {why}"]


def test_a_layer_that_vllm_computes_faster(
    hk_cpu: Any,
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By measurement; unless the user has decided otherwise."""
    monkeypatch.setattr(evidence, "host_isa", lambda operator: "amx")
    # vLLM's own attention would use tiles, which nothing in this process has asked Linux for
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    environment(HK_EVIDENCE="use")
    batch = Batch(Layer(hk_cpu, torch.bfloat16), ROWS)
    batch.run()
    fell_back(counters, evidence.LOSSES[0].why)
    environment(HK_EVIDENCE="ignore")
    assert not Layer(hk_cpu, torch.bfloat16).impl._hk_refusal


def test_a_step_that_vllm_computes_faster(
    hk_cpu: Any,
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Decided step by step, by the longest prompt; its layers are HK's all the same."""
    monkeypatch.setattr(evidence, "host_isa", lambda operator: "avx512")
    environment(HK_EVIDENCE="use", HK_STRICT="1")
    layer = Layer(hk_cpu)
    short = Batch(layer, ROWS)
    short.run()
    short.check()
    fell_back(counters, evidence.LOSSES[1].why)
    long = Batch(layer, [DECODE, EXTEND, Row(128)])
    long.run()
    long.check()
    assert counters.served == Tally(1, EXTEND.query + 128)


# -- a call that is the parent's


def test_no_metadata_is_a_dummy_run(
    layer: Layer, counters: RouteCounters, parent_calls: list[Any]
) -> None:
    batch = Batch(layer, ROWS)
    batch.forward(None)
    assert counters.dummy == Tally(1, len(batch.query))
    assert not counters.fallbacks
    assert parent_calls == [None]


def test_metadata_that_lost_its_plan(layer: Layer, counters: RouteCounters) -> None:
    """vLLM's fast prefill copies the fields that the parent's dataclass declares."""
    batch = Batch(layer, ROWS)
    metadata = batch.build()
    del metadata.hk
    batch.forward(metadata)
    batch.check()
    fell_back(counters, "metadata rebuilt by the engine", len(batch.query))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (lambda b: {"key": None, "value": None}, "no keys handed over"),
        (lambda b: {"query": b.query.to(torch.float8_e4m3fn)}, "query in torch.float8_e4m3fn"),
        (
            lambda b: {"output_scale": torch.ones(1)},
            "output quantised in the attention kernel",
        ),
        (
            lambda b: {"output_block_scale": torch.ones(1)},
            "output quantised in the attention kernel",
        ),
    ],
    ids=["no key", "fp8 query", "output scale", "output block scale"],
)
def test_calls_only_the_parent_understands(
    layer: Layer,
    counters: RouteCounters,
    parent_calls: list[Any],
    changes: Callable[[Batch], dict[str, Any]],
    why: str,
) -> None:
    batch = Batch(layer, ROWS)
    metadata = batch.build()
    batch.forward(metadata, **changes(batch))
    fell_back(counters, why)
    assert parent_calls == [metadata]
    assert batch.output.isnan().all()


def test_values_of_another_size(
    layer: Layer, counters: RouteCounters, parent_calls: list[Any]
) -> None:
    layer.module.head_size_v = 128
    Batch(layer, ROWS).run()
    fell_back(counters, "values of 128 channels, keys of 64")
    assert len(parent_calls) == 1


def test_a_route_that_was_switched_off(layer: Layer, counters: RouteCounters) -> None:
    routes.disable("attention", "switched off by hand")
    batch = Batch(layer, ROWS)
    batch.run()
    batch.check()
    fell_back(counters, "switched off by hand")


def test_hk_fails(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Whatever breaks: this call and all after it are the parent's, with one error in the log."""

    def broken(*args: Any, **kwargs: Any) -> None:
        kwargs["out"].fill_(7.0)
        raise RuntimeError("the extension is broken")

    monkeypatch.setattr("hk_backend.engine.attention.attention_prefill", broken)
    for seed in range(2):
        batch = Batch(layer, ROWS, seed)
        batch.run()
        found = batch.output[: batch.num_tokens].double()
        torch.testing.assert_close(found, batch.expected(), rtol=2e-5, atol=2e-5)
    why = "HK failed: RuntimeError: the extension is broken"
    assert dict(counters.fallbacks) == {why: Tally(2, 2 * PREFILL)}
    assert not counters.served.calls
    assert routes.verdict("attention").why == why
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert why in errors[0].getMessage()


def test_a_cache_that_does_not_read_back(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that HK does not know: cached tokens are the parent's, fresh ones are not."""
    known = FORMS["CPU_ATTN"]

    def misread(kv_cache: torch.Tensor, impl: Any) -> Any:
        return known.read(kv_cache.flip(1).contiguous(), impl)

    monkeypatch.setattr("hk_backend.engine.cache_proof._proven", set())
    monkeypatch.setattr(type(layer.impl), "hk_form", replace(known, read=misread))
    batch = Batch(layer, ROWS)
    batch.run()
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form")
    fell_back(counters, why)
    batch = Batch(layer, [FRESH])
    batch.run()
    batch.check()
    assert counters.served == Tally(1, FRESH.query)


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The caches that were written to and read back from now on."""
    done: list[Any] = []
    prove = cache_proof.prove

    def noted(cache: Any, *rest: Any) -> None:
        done.append(cache)
        prove(cache, *rest)

    monkeypatch.setattr(cache_proof, "_proven", set())
    monkeypatch.setattr(cache_proof, "prove", noted)
    return done


def test_a_dummy_run_proves_the_cache(layer: Layer, proofs: list[Any]) -> None:
    """Once the engine has bound one; no request pays for it, and the cache is left as it was."""
    batch = Batch(layer, ROWS)
    bound, layer.kv_cache = layer.kv_cache, torch.empty(0)
    for cache, proven in ((torch.empty(0), 0), (bound, 1), (bound, 1)):
        before = cache.clone()
        layer.impl.forward(
            layer.module, batch.query, batch.key, batch.value, cache, None, output=batch.output
        )
        assert len(proofs) == proven
        assert torch.equal(cache, before)
    layer.kv_cache = bound
    batch.run()
    batch.check()
    assert len(proofs) == 1


def test_a_dummy_run_leaves_a_refused_cache_alone(
    hk_cpu: Any, monkeypatch: pytest.MonkeyPatch, proofs: list[Any], caplog: Any
) -> None:
    monkeypatch.setattr("vllm.v1.attention.backends.cpu_attn._get_attn_isa", lambda *args: "amx")
    layer = Layer(hk_cpu)
    batch = Batch(layer, [FRESH])
    layer.impl.forward(
        layer.module, batch.query, batch.key, batch.value, layer.kv_cache, None, output=batch.output
    )
    assert not proofs
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_dummy_run_finds_a_cache_that_does_not_read_back(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, proofs: list[Any]
) -> None:
    def misread(kv_cache: torch.Tensor, impl: Any) -> Any:
        return FORMS["CPU_ATTN"].read(kv_cache.flip(1).contiguous(), impl)

    monkeypatch.setattr(type(layer.impl), "hk_form", replace(FORMS["CPU_ATTN"], read=misread))
    batch = Batch(layer, ROWS)
    layer.impl.forward(
        layer.module, batch.query, batch.key, batch.value, layer.kv_cache, None, output=batch.output
    )
    batch.run()
    batch.check()
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form")
    assert len(proofs) == 1


def test_a_cache_of_another_shape(layer: Layer) -> None:
    wide = torch.zeros(4, 2, 32, 130)
    with pytest.raises(UnknownCacheForm, match=r"expected \[blocks, 2, tokens, 128\]"):
        layer.impl.hk_form.read(wide, layer.impl)


def test_a_cache_bound_again_at_the_same_address(layer: Layer) -> None:
    """A smaller pool may begin where the larger one did: blocks behind its end are not HK's."""
    Batch(layer, [EXTEND, FRESH]).run()
    whole = layer.impl._hk_paged(layer.module, layer.kv_cache)
    fewer = layer.kv_cache[: layer.num_blocks // 2]
    assert fewer.data_ptr() == layer.kv_cache.data_ptr()
    assert layer.impl._hk_paged(layer.module, fewer).num_blocks == layer.num_blocks // 2
    assert whole.num_blocks == layer.num_blocks


# -- HK_STRICT


def test_strict_refuses_to_construct_a_refused_layer(
    hk_cpu: Any, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(HK_STRICT="1")
    Layer(hk_cpu)
    monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", True)
    with pytest.raises(StrictError, match="VLLM_BATCH_INVARIANT"):
        Layer(hk_cpu)


def test_strict_refuses_parallelism_that_would_fall_back(
    hk_cpu: Any, environment: Callable[..., None]
) -> None:
    environment(HK_STRICT="1")
    config = vllm_config(decode_context_parallel_size=2)
    with pytest.raises(StrictError, match="decode context parallelism"):
        Layer(hk_cpu, config=config)


def test_strict_refuses_an_unreadable_cache(
    hk_cpu: Any, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(HK_STRICT="1")
    monkeypatch.setattr("vllm.v1.attention.backends.cpu_attn._get_attn_isa", lambda *args: "amx")
    with pytest.raises(StrictError, match="amx cache form"):
        Layer(hk_cpu)
