"""Decides whether HK serves a layer, by the arguments that vLLM constructs it with."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from vllm.v1.attention.backend import AttentionType

from hk_backend.engine.attention import ask
from hk_backend.ops import AttentionRequest
from hk_backend.terms.verdict import Verdict, refused


def named_arguments(init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a bound `__init__` by name, defaults included."""
    bound = inspect.signature(init).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def kv_dtype(kv_cache_dtype: str, model_dtype: torch.dtype) -> torch.dtype | None:
    """Dtype of a cache of vLLM's `kv_cache_dtype`; None if HK does not know it."""
    if kv_cache_dtype in ("fp8", "fp8_e4m3", "fp8_e5m2"):
        # for e5m2, too, vLLM's ROCm backends make this dtype, or their writers refuse it
        from vllm.platforms import current_platform

        dtype: torch.dtype = current_platform.fp8_dtype()
        return dtype
    named = {"auto": model_dtype, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return named.get(kv_cache_dtype)


def layer_verdict(impl: Any, layer: dict[str, Any]) -> Verdict:
    """Whether HK can serve the prefill of `impl`, constructed with the arguments `layer`."""
    from vllm import envs

    if layer["attn_type"] != AttentionType.DECODER:
        return refused(f"attention type {AttentionType(layer['attn_type']).value}")
    if layer["kv_sharing_target_layer_name"] is not None:
        return refused("keys and values of another layer's cache")
    if layer.get("use_alibi_sqrt"):
        return refused("square-root ALiBi")
    if layer.get("chunk_lookback", -1) > -1:
        return refused("chunked attention with lookback")
    if impl.dcp_world_size > 1 or impl.pcp_world_size > 1:
        return refused("context parallelism")
    if envs.VLLM_BATCH_INVARIANT:
        return refused("VLLM_BATCH_INVARIANT: not proven for HK")
    return ask(attention_request(impl, layer))


def attention_request(impl: Any, layer: dict[str, Any]) -> AttentionRequest:
    """Request for a layer's prefill attention over the keys that were just projected."""
    from vllm.platforms import current_platform

    return AttentionRequest(
        device_type=current_platform.device_type,
        dtype=impl._hk_dtype,
        num_heads=layer["num_heads"],
        num_kv_heads=layer["num_kv_heads"] or layer["num_heads"],
        head_size=layer["head_size"],
        sliding_window=layer["sliding_window"],
        logits_soft_cap=layer["logits_soft_cap"],
        has_sinks=layer.get("sinks") is not None,
        has_alibi=layer["alibi_slopes"] is not None,
    )


def cache_verdict(impl: Any, block_size: int) -> Verdict:
    """Whether HK reads the cache of `impl`, a layer that it serves, in blocks of `block_size`."""
    cached = impl._hk_kv_dtype
    if cached is None or (cached is not impl._hk_dtype and not impl._hk_form.fp8):
        return refused(f"kv_cache_dtype {impl._hk_cache_dtype}")
    request = replace(
        impl._hk_request,
        kv_dtype=cached,
        paged=True,
        block_size=block_size,
        cache_layouts=impl._hk_form.layouts,
    )
    return ask(request)
