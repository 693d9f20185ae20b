"""Decides whether HK serves a layer of a model, a `RadixAttention`, and remembers the answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention

from hk_backend.config import get_config
from hk_backend.devices import device_for
from hk_backend.engine import loggers
from hk_backend.engine.attention import DECODE, MOST_QUERY_TOKENS, AttentionRoute, ask
from hk_backend.engine.decode_rows import DecodeRows
from hk_backend.engine.evidence import Decision
from hk_backend.engine.sinks import FloatSinks
from hk_backend.engine.strict import refuse
from hk_backend.ops import AttentionRequest, DecodeRequest
from hk_backend.routing.metrics import count_layer
from hk_backend.terms.verdict import Verdict
from hk_sglang.attention.evidence import Evidence
from hk_sglang.attention.parents import Parent
from hk_sglang.attention.pools import Caches, is_window_layer, layouts_of, refuse_pool

logger = loggers.of("sglang", "attention")


@dataclass
class ServedLayer:
    """The knowledge of HK about one layer.

    Args:
        arguments: those of `ops.attention_prefill` that never change.
        route, decode_route: the layer's calls of prefill and of decode.
        refusal: reason why the parent computes its prefill; empty if HK may.
        cache_refusal: reason why HK cannot read its cache, and serves only batches without cached
            tokens; empty if it can.
        decision: the lengths of prompts for which HK is faster; None: not measured.
        decode_decisions: the numbers of requests for which HK's decode is faster, by their length.
        decode_refusal: reason why the parent computes its decode; empty if HK may.
        in_window_pool: see `pools.is_window_layer`.
        decode_request: the request for its decode; None: decode is not a route.
        sinks: the layer's sinks, which come with each call.
    """

    request: AttentionRequest
    arguments: dict[str, Any]
    route: AttentionRoute
    decode_route: AttentionRoute
    refusal: str = ""
    cache_refusal: str = ""
    decision: Decision | None = None
    decode_decisions: tuple[Decision, ...] = ()
    decode_refusal: str = ""
    in_window_pool: bool = False
    decode_request: DecodeRequest | None = None
    sinks: FloatSinks = field(default_factory=FloatSinks)
    _sinks_refusals: dict[bool, str] = field(default_factory=dict)

    def sinks_refusal(self, decodes: bool) -> str:
        """Reason why HK does not serve the layer with sinks, which come with a call; or empty.

        Args:
            decodes: whether the call has decode rows of HK's.
        """
        found = self._sinks_refusals.get(decodes)
        if found is None:
            asked = [self.request, self.decode_request if decodes else None]
            whys = (ask(replace(each, has_sinks=True)).why for each in asked if each is not None)
            found = self._sinks_refusals[decodes] = next(filter(None, whys), "")
        return found


class ServedLayers(dict[Any, ServedLayer]):
    """The knowledge of HK about a model's layers, each found once; its cache is proven then.

    Args:
        cache: the pool.
        dtype: dtype of the model's activations.
        device_type: torch's device type, `cuda` on ROCm.
        evidence: decides who computes a layer; None: HK does wherever it can.
        decode_refusal: reason why the parent computes decode in any case; empty if there is none.
        query_tokens: most query tokens of a decode row: one and its drafts.
    """

    def __init__(
        self,
        cache: Caches,
        dtype: torch.dtype,
        device_type: str,
        evidence: Evidence | None,
        decode_refusal: str = "",
        query_tokens: int = 1,
    ) -> None:
        super().__init__()
        self._decode_refusal = decode_refusal
        self._query_tokens = min(query_tokens, MOST_QUERY_TOKENS)
        self._cache, self._evidence = cache, evidence
        self._dtype, self._device_type = dtype, device_type

    def __missing__(self, layer: Any) -> ServedLayer:
        served = judge(layer, self._cache.pool, self._dtype, self._device_type)
        self[layer] = served
        if not served.refusal and not served.cache_refusal:
            served.cache_refusal = self._cache.prove(layer)
        if not served.refusal and self._evidence:
            served.decision = self._evidence.decision_on(layer, served.request)
            served.refusal = served.decision.somewhere.why
        refuse(served.refusal or served.cache_refusal)
        served.decode_refusal = served.refusal
        if not served.refusal and DECODE in get_config().backend:
            self._judge_decode(layer, served)
        return served

    def _judge_decode(self, layer: Any, served: ServedLayer) -> None:
        """Decides who computes the decode of a layer whose prefill HK serves.

        All ranks take the answers of rank 0, before each considers what it finds itself.
        """
        request = decode_request(
            served.request, self._cache.pool, layer.layer_id, self._query_tokens
        )
        served.decode_request = request
        why = self._decode_refusal or served.cache_refusal or ask(request).why
        if self._evidence:
            served.decode_decisions = self._evidence.decode_decisions(layer, request, why)
        whys = (each.somewhere.why for each in served.decode_decisions)
        served.decode_refusal = why or next(filter(None, whys), "")

    def decode_rows(self) -> DecodeRows | None:
        """The decode rows of all layers; None if the parent computes them."""
        if not self.serves() or DECODE not in get_config().backend:
            return None
        why = next((each.decode_refusal for each in self.values() if each.decode_refusal), "")
        for _ in self:
            count_layer(DECODE, why)
        device = device_for(self._device_type).name
        said = f"left to the parent: {why}" if why else f"computed by HK on {device}"
        logger.info("hk_backend: decode attention is %s", said)
        if why:
            return None
        decisions = [each for layer in self.values() for each in layer.decode_decisions]
        return DecodeRows(decisions, self._query_tokens)

    def cache_refusal(self) -> str:
        """Reason why HK cannot read the cache of a layer that it serves; empty if it can."""
        served = [layer for layer in self.values() if not layer.refusal]
        return next((layer.cache_refusal for layer in served if layer.cache_refusal), "")

    def serves(self) -> bool:
        """Whether HK serves any layer."""
        return any(not layer.refusal for layer in self.values())

    def log(self, name: str, parent: Parent) -> None:
        """Logs in one line what is routed, and in one line each reason why layers are not."""
        left = Counter(layer.refusal for layer in self.values() if layer.refusal)
        served = len(self) - left.total()
        if served:
            device = device_for(self._device_type).name
            said = "hk_backend: prefill attention of %d layers is computed by HK on %s, beside %s"
            logger.info(said, served, device, name)
        if not self:
            logger.warning("hk_backend: no attention layers that HK knows; %s serves all", name)
        capped = any(layer.request.logits_soft_cap for layer in self.values())
        if served and capped and not parent.caps_logits:
            said = "hk_backend: %s leaves out the model's logit cap, in decode too; HK has it"
            logger.warning(said, name)
        for why, layers in left.items():
            logger.warning("hk_backend: %d layers left to %s: %s", layers, name, why)
        for why in {layer.cache_refusal for layer in self.values()} - {""}:
            logger.warning("hk_backend: requests with cached tokens are left to %s: %s", name, why)


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
    own = AttentionRoute(logger), AttentionRoute(logger, DECODE)
    served = ServedLayer(request, arguments, *own)
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
    return ask(replace(request, **cache_facts(pool, layer_id)))


def decode_request(
    request: AttentionRequest, pool: Any, layer_id: int, query_tokens: int
) -> DecodeRequest:
    """The request for the decode of a layer over its pool, of rows of up to `query_tokens`."""
    facts = asdict(request) | cache_facts(pool, layer_id)
    return DecodeRequest(**facts, max_query_len=query_tokens)


def cache_facts(pool: Any, layer_id: int) -> dict[str, Any]:
    """Facts of a layer's cache that decide whether HK reads it."""
    return {
        "kv_dtype": pool.dtype,
        "paged": True,
        "block_size": pool.page_size,
        "cache_layouts": layouts_of(pool, layer_id),
    }
