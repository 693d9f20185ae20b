"""Layers that are the parent's, by their arguments and by vLLM's configuration; HK_STRICT refuses
to construct them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.attention.layer import cache_verdict, kv_dtype, layer_verdict

from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import (
    BLOCK_SIZE,
    MIXED,
    NUM_HEADS,
    PREFILL,
    Batch,
    Layer,
    vllm_config,
)
from tests.integration.shared.attention.counted import fell_back


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
        dcp_world_size=changes.get("dcp", 1),
        pcp_world_size=changes.get("pcp", 1),
    )
    return layer_verdict(impl, arguments).why


@pytest.mark.parametrize("cache", ["int8_per_token_head", "fp8", "bfloat16"])
def test_a_cache_in_another_dtype(
    layer: Layer, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """Its layer is served, and so are fresh rows, which do not read it."""
    assert verdict_of(layer, {"kv_cache_dtype": cache}) == ""
    monkeypatch.setattr(layer.impl, "_hk_cache_dtype", cache)
    monkeypatch.setattr(layer.impl, "_hk_kv_dtype", kv_dtype(cache, torch.float32))
    assert cache_verdict(layer.impl, BLOCK_SIZE).why == f"kv_cache_dtype {cache}"


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
    Batch(Layer(hk_cpu), MIXED).run_and_check()
    fell_back(counters, "VLLM_BATCH_INVARIANT: not proven for HK", PREFILL)


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
    Batch(Layer(hk_cpu), MIXED).run_and_check()
    (why,) = counters.fallbacks
    assert "HK_DEVICE=hip" in why
    ours = [r for r in caplog.records if r.name == "vllm.hk_vllm.attention"]
    warned = [r.getMessage() for r in ours if r.levelname == "WARNING"]
    assert warned == [f"hk_backend: no attention layer is computed by HK: {why}"]


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
    monkeypatch.setattr("vllm.v1.attention.backends.cpu_attn._get_attn_isa", lambda *args: "vxe")
    with pytest.raises(StrictError, match="vxe cache form"):
        Layer(hk_cpu)
