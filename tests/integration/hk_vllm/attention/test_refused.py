"""Layers, batches and calls that stay the parent's, each counted by its reason.

HK_STRICT refuses to construct such layers. Layer calls and prefill tokens are counted. Where the
parent can compute the batch, its result must equal the reference. Where it cannot, it must have
been called with the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.attention.batch import refuse_batch
from hk_vllm.attention.builder import refuse_parallel
from hk_vllm.attention.layer import cache_verdict, kv_dtype, layer_verdict

from hk_backend.engine.rows import SPECULATIVE
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.adapter import Environment
from tests.integration.hk_vllm.attention.batch import (
    BLOCK_SIZE,
    MIXED,
    NUM_HEADS,
    PREFILL,
    Batch,
    Layer,
    vllm_config,
    with_drafts,
)
from tests.integration.hk_vllm.attention.engine import HK_CPU
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import DRAFTS, EXTEND, FRESH, SHORT_EXTEND, VERIFY

# -- layers


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
        ({"head_size": 12}, "head_size 12 is not a multiple of 8 up to 256"),
        ({"num_heads": 7}, "7 query heads are not a multiple of 2 KV heads"),
        ({"dcp": 2}, "context parallelism"),
        ({"pcp": 2}, "context parallelism"),
        ({}, ""),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_layers(changes: dict[str, Any], why: str) -> None:
    assert verdict_of(changes) == why


def verdict_of(changes: dict[str, Any]) -> str:
    """The verdict on a layer that vLLM constructs with other arguments."""
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
    sizes = {f"{group}_world_size": changes.get(group, 1) for group in ("dcp", "pcp")}
    return layer_verdict(SimpleNamespace(_hk_dtype=torch.float32, **sizes), arguments).why


@pytest.mark.parametrize("cache", ["int8_per_token_head", "fp8", "bfloat16"])
def test_a_cache_in_another_dtype(
    layer: Layer, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """HK serves the layer and its fresh rows, which do not read the cache."""
    assert verdict_of({"kv_cache_dtype": cache}) == ""
    monkeypatch.setattr(layer.impl, "_hk_cache_dtype", cache)
    monkeypatch.setattr(layer.impl, "_hk_kv_dtype", kv_dtype(cache, torch.float32))
    assert cache_verdict(layer.impl, BLOCK_SIZE).why == f"kv_cache_dtype {cache}"


def test_batch_invariance(
    counters: RouteCounters, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", True)
    Batch(Layer(HK_CPU), MIXED).run_and_check()
    fell_back(counters, "VLLM_BATCH_INVARIANT: not proven for HK", PREFILL)
    assert_strict_refuses("VLLM_BATCH_INVARIANT", HK_CPU, environment)


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
    counters: RouteCounters, parallel: dict[str, Any], why: str
) -> None:
    layer = Layer(HK_CPU)
    layer.builder._hk_refusal = refuse_parallel(vllm_config(**parallel).parallel_config)
    Batch(layer, MIXED).run_and_check()
    fell_back(counters, why, PREFILL)


def assert_strict_refuses(why: str, backend: Any, environment: Environment, **layer: Any) -> None:
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match=why):
        Layer(backend, **layer)


# -- batches


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
    batch = Batch(layer, MIXED)
    metadata = batch.build(**changes)
    batch.forward(metadata)
    fell_back(counters, why, PREFILL)
    assert parent_calls == [metadata]


@pytest.mark.parametrize("changes", [{"mm_req_doc_ranges": {}}, {"seq_lens_cpu_upper_bound": None}])
def test_batches_that_say_less(
    layer: Layer, counters: RouteCounters, changes: dict[str, Any]
) -> None:
    """HK serves a batch without document ranges, or with lengths on a device that is the host.

    It refuses one whose lengths are on a GPU only, since reading them would stall.
    """
    batch = Batch(layer, MIXED)
    batch.run(**changes)
    batch.check()
    assert counters.served.tokens == PREFILL
    common = batch.common_metadata(seq_lens_cpu_upper_bound=None)
    common.seq_lens = SimpleNamespace(device=torch.device("cuda"))
    assert refuse_batch(common) == "no sequence lengths on the host"


@pytest.mark.parametrize(
    "more", [{"method": "draft_model"}, {"method": "eagle", "parallel_drafting": True}], ids=str
)
def test_drafters_that_add_slots(counters: RouteCounters, more: dict[str, Any]) -> None:
    """A drafter's first pass has tokens that look like a prompt's in the engine's numbers."""
    layer = Layer(HK_CPU, config=with_drafts(vllm_config(), DRAFTS, **more))
    batch = Batch(layer, MIXED)
    batch.forward(layer.builder.build_for_drafting(batch.common_metadata(), 0))
    batch.check()
    fell_back(counters, "drafting", PREFILL)


def test_adaptive_verification(counters: RouteCounters) -> None:
    """The device trims drafts, so that rows begin elsewhere than the host believes."""
    config = with_drafts(vllm_config(), drafts=3, enable_adaptive_verification=True)
    Batch(Layer(HK_CPU, config=config), MIXED).run_and_check()
    fell_back(counters, "adaptive verification", PREFILL)


@pytest.mark.parametrize("build", ["drafting", "fast"])
@pytest.mark.parametrize("method", ["eagle", "mtp"])
def test_the_first_pass_of_a_drafter(counters: RouteCounters, build: str, method: str) -> None:
    """A drafter's first pass computes the target's tokens, and does not mark prompts' rows."""
    layer = Layer(HK_CPU, config=with_drafts(vllm_config(), DRAFTS, method))
    batch = Batch(layer, [FRESH, VERIFY, EXTEND, SHORT_EXTEND])
    common = batch.common_metadata(is_prefilling=None)
    if build == "drafting":
        metadata = layer.builder.build_for_drafting(common, 0)
    else:
        metadata = layer.builder.build(0, common, fast_build=True)
    batch.forward(metadata)
    batch.check()
    assert counters.served == Tally(1, FRESH.query + EXTEND.query)
    assert counters.fallbacks[SPECULATIVE].tokens == VERIFY.query + SHORT_EXTEND.query


# -- calls


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (lambda b: {"key": None, "value": None}, "no keys handed over"),
        (lambda b: {"query": b.query.to(torch.float8_e4m3fn)}, "query in torch.float8_e4m3fn"),
        (lambda b: {"output_scale": torch.ones(1)}, "output quantised in the attention kernel"),
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
    batch = Batch(layer, MIXED)
    metadata = batch.build()
    batch.forward(metadata, **changes(batch))
    fell_back(counters, why, PREFILL)
    assert parent_calls == [metadata]
    assert batch.output.isnan().all()


def test_values_of_another_size(
    layer: Layer, counters: RouteCounters, parent_calls: list[Any]
) -> None:
    layer.module.head_size_v = 128
    Batch(layer, MIXED).run()
    fell_back(counters, "values of 128 channels, keys of 64", PREFILL)
    assert len(parent_calls) == 1
