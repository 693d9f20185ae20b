"""Decides whether HK serves a layer, a `RadixAttention` as a model makes it, by HK's envelope."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention

from hk_backend.engine import loggers
from hk_backend.engine.attention import PrefillRoute, ask
from hk_backend.engine.evidence import Decision
from hk_backend.ops import AttentionRequest
from hk_backend.terms.verdict import Verdict
from hk_sglang.attention.pools import is_window_layer, layouts_of, refuse_pool


@dataclass
class ServedLayer:
    """The knowledge of HK about one layer.

    Args:
        arguments: those of `ops.attention_prefill` that never change.
        route: the layer's calls.
        refusal: reason why the parent computes its prefill; empty if HK may.
        cache_refusal: reason why HK cannot read its cache, and serves only batches without cached
            tokens; empty if it can.
        decision: the lengths of prompts for which HK is faster; None: not measured.
        in_window_pool: see `pools.is_window_layer`.
    """

    request: AttentionRequest
    arguments: dict[str, Any]
    route: PrefillRoute
    refusal: str = ""
    cache_refusal: str = ""
    decision: Decision | None = None
    in_window_pool: bool = False
    _sinks_refusal: str | None = None

    def sinks_refusal(self) -> str:
        """Reason why HK does not serve the layer with sinks, which come with a call; or empty."""
        if self._sinks_refusal is None:
            self._sinks_refusal = ask(replace(self.request, has_sinks=True)).why
        return self._sinks_refusal


def layers_of(model: Any) -> list[Any]:
    """The attention layers of `model`.

    Models that SGLang makes by transformers keep theirs in a dictionary (models/transformers.py).
    """
    kept = getattr(model, "attention_instances", None) or {}
    found = [each for each in model.modules() if isinstance(each, RadixAttention)]
    return [*found, *(each for each in kept.values() if each not in found)]


def judge(layer: Any, pool: Any, dtype: torch.dtype, device_type: str) -> ServedLayer:
    """Asks the envelope about `layer`.

    Args:
        pool: the runner's `token_to_kv_pool`.
        dtype: dtype of the model's activations.
        device_type: torch's device type, `cuda` on ROCm.
    """
    window = layer.sliding_window_size
    arguments = {
        "scale": layer.scaling,
        # SGLang counts the keys behind the query, HK also the query's own (model files: window - 1)
        "sliding_window": window + 1 if window is not None and window > -1 else None,
        "logits_soft_cap": layer.logit_cap or None,
    }
    request = AttentionRequest(
        device_type=device_type,
        dtype=dtype,
        num_heads=layer.tp_q_head_num,
        num_kv_heads=layer.tp_k_head_num,
        head_size=layer.qk_head_dim,
        sliding_window=arguments["sliding_window"],
        logits_soft_cap=arguments["logits_soft_cap"],
    )
    served = ServedLayer(request, arguments, PrefillRoute(loggers.of("sglang", "attention")))
    served.refusal = refuse_layer(layer) or refuse_pool(pool, layer.layer_id) or ask(request).why
    if not served.refusal:
        served.in_window_pool = is_window_layer(pool, layer.layer_id)
        served.cache_refusal = cache_verdict(request, pool, layer.layer_id).why
    return served


def refuse_layer(layer: Any) -> str:
    """Reason why HK does not serve a kind of attention: not a decoder's, or not in the operator."""
    if layer.is_cross_attention:
        return "cross attention"
    if layer.attn_type is not AttentionType.DECODER:
        return f"attention type {layer.attn_type.value}"
    if layer.v_head_dim != layer.qk_head_dim:  # the operator serves them; HK reads no such pool
        return f"values of {layer.v_head_dim} channels, keys of {layer.qk_head_dim}"
    if layer.use_irope:
        return "chunked local attention"
    if layer.pos_encoding_mode != "NONE":
        return f"position encoding {layer.pos_encoding_mode}"
    if layer.logit_cap and layer.logit_capping_method != "tanh":
        return f"logits capped by {layer.logit_capping_method}"
    if layer.xai_temperature_len > 0:
        return "a temperature that depends on the position"
    return ""


def cache_verdict(request: AttentionRequest, pool: Any, layer_id: int) -> Verdict:
    """Whether HK reads the pool of a layer that it serves."""
    paged = replace(
        request,
        kv_dtype=pool.dtype,
        paged=True,
        block_size=pool.page_size,
        cache_layouts=layouts_of(pool, layer_id),
    )
    return ask(paged)
