"""Computes a layer: HK its rows, the parent the rest; counts every fallback with its reason."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from vllm.platforms import current_platform

from hk_backend.devices import device_for
from hk_backend.engine import cache_proof, loggers
from hk_backend.engine.attention import (
    DECODE,
    ROUTE,
    AttentionRoute,
    LayerTensors,
    survive,
)
from hk_backend.engine.batch_plan import BatchPlan, tensors_of
from hk_backend.engine.cache_proof import SPARE_BLOCK, UnknownCacheForm
from hk_backend.engine.evidence import Decision
from hk_backend.engine.rows import Selection
from hk_backend.engine.sinks import FloatSinks
from hk_backend.engine.strict import refuse
from hk_backend.ops import PagedKV
from hk_backend.routing.routes import routes
from hk_backend.terms.attention_step import AttentionStep
from hk_vllm import compile_key, sleeping
from hk_vllm.attention.cache_forms import CacheForm
from hk_vllm.attention.contest import decide_attention
from hk_vllm.attention.decode import decide_decode
from hk_vllm.attention.layer import (
    attention_request,
    cache_verdict,
    kv_dtype,
    layer_verdict,
    named_arguments,
)

Parent: Any = object
"""Base of a mixin: mypy then lets it call methods of whatever parent it is mixed into."""

logger = loggers.of("vllm", "attention")


def is_capturing() -> bool:
    """Whether a graph is recording what HK launches now."""
    return device_for(current_platform.device_type).is_capturing()


NO_PLAN = BatchPlan("metadata rebuilt by the engine")
PROFILING = BatchPlan("no metadata", dummy=True)


class HKImpl(Parent):  # type: ignore[misc]
    """Mixin over a parent's attention implementation."""

    hk_parent: ClassVar[Any]
    """The backend that HK wraps."""
    hk_form_of: ClassVar[Any]
    """Returns the form of the parent's caches for its builder (`cache_forms.FormOf`)."""
    hk_measured: ClassVar[bool]
    """Whether HK serves only where it is faster than the parent."""
    _hk_form: CacheForm
    """Form of the layer's cache; HKBuilder sets it in the layers that HK serves."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        layer = named_arguments(super().__init__, args, kwargs)
        self._hk_dtype = torch.get_default_dtype()  # vLLM constructs layers under the model's dtype
        self._hk_cache_dtype: str = layer["kv_cache_dtype"]
        self._hk_kv_dtype = kv_dtype(self._hk_cache_dtype, self._hk_dtype)
        self._hk_sinks = layer.get("sinks")
        self._hk_float_sinks = FloatSinks()
        slopes = layer["alibi_slopes"]
        self._hk_layer_arguments = {
            "scale": self.scale,
            "sliding_window": layer["sliding_window"],
            "logits_soft_cap": layer["logits_soft_cap"],
            "alibi_slopes": None if slopes is None else sleeping.lasting(slopes),
        }
        self._hk_cache: tuple[int, torch.Size, PagedKV] | None = None
        self._hk_cache_refusal = ""
        self._hk_route = AttentionRoute(logger)
        self._hk_decode_route = AttentionRoute(logger, DECODE)
        self._hk_request = attention_request(self, layer)
        why = layer_verdict(self, layer).why
        self._hk_decision: Decision | None = None if why else decide_attention(self, layer)
        self._hk_decode_decisions: tuple[Decision, ...] = ()
        self._hk_decode_counted = False
        if self._hk_decision is not None:
            why = self._hk_decision.somewhere.why
            self._hk_decode_decisions = () if why else decide_decode(self, layer)
        self._hk_refusal = refuse(why)
        if self._hk_refusal:
            said = "hk_backend: layers left to vLLM's attention: %s"
            loggers.info_once(logger, said, self._hk_refusal)
        else:
            assert self._hk_decision is not None
            device = device_for(current_platform.device_type).name
            said = "hk_backend: prefill attention is computed by HK on %s"
            loggers.info_once(logger, said, device)
            compile_key.add_route(ROUTE, self._hk_decision.kind.layer)
            # HK takes the query as the model computed it, not a quantised one
            self.supports_quant_query_input = False

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        return bool(self._hk_refusal) and super().fused_output_quant_supported(quant_key)

    def fused_qk_norm_mrope_kvcache_supported(self) -> bool:
        # this fusion rotates keys into the cache only and hands forward() the unrotated ones
        return bool(self._hk_refusal) and super().fused_qk_norm_mrope_kvcache_supported()

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor | None,
        value: torch.Tensor | None,
        kv_cache: torch.Tensor,
        attn_metadata: Any,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> Any:
        plan = getattr(attn_metadata, "hk", NO_PLAN)
        if attn_metadata is None:
            plan = PROFILING
            self._hk_meet_cache(layer, kv_cache)
        part, theirs = output, None
        if plan is not None:  # otherwise the batch has only decode rows, which HK leaves
            quantised = output_scale is not None or output_block_scale is not None
            call: Any = query, key, value, output
            if self._hk_serve(plan, layer, call, kv_cache, quantised):
                if plan.others is None or plan.decode is not None:
                    return output
                theirs = plan.others
        if theirs is not None:
            attn_metadata = plan.parent
            if not theirs.leads:  # otherwise the parent's metadata tell where its rows end
                assert key is not None  # HK serves no call without keys
                assert value is not None
                query, key, value = map(theirs.of_tokens, (query, key, value))
                part = theirs.output_for(output)
        scales = output_scale, output_block_scale
        found = super().forward(layer, query, key, value, kv_cache, attn_metadata, part, *scales)
        if theirs is None:
            return found
        theirs.scatter(part, output)
        return output

    def _hk_serve(
        self, plan: BatchPlan, layer: Any, call: Any, kv_cache: torch.Tensor, quantised: bool
    ) -> bool:
        """Computes HK's rows, and counts them; returns whether it did."""
        query, key = call[:2]
        why = plan.refusal or self._hk_refusal
        why = why or self._hk_why(plan, layer, query, key, quantised)
        if plan.mine is None and plan.decode is None:
            why = why or plan.left_decode
        if not why and plan.mine is not None:
            why = self._hk_prefill(plan, layer, call, kv_cache)
        if not why and plan.decode is not None:
            why = self._hk_decode(plan, layer, call, kv_cache)
        plan.count(why, query.shape[0], plan.captured and is_capturing())
        return not why

    def _hk_why(
        self,
        plan: BatchPlan,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor | None,
        quantised: bool,
    ) -> str:
        """Reason why the parent computes this call; empty if HK may serve it."""
        if (plan.reads_cache or plan.decode is not None) and self._hk_cache_refusal:
            return self._hk_cache_refusal
        if key is None:
            return "no keys handed over"
        if query.dtype is not self._hk_dtype:
            return f"query in {query.dtype}"
        if quantised:
            return "output quantised in the attention kernel"
        if getattr(layer, "head_size_v", self.head_size) != self.head_size:
            return f"values of {layer.head_size_v} channels, keys of {self.head_size}"
        return ""

    def _hk_prefill(
        self, plan: BatchPlan, layer: Any, call: LayerTensors, kv_cache: torch.Tensor
    ) -> str:
        """Writes HK's prefill rows to the output, the last tensor of a `call`.

        Returns the reason if the parent must compute the batch.
        """
        if routes.is_disabled(ROUTE):
            return routes.verdict(ROUTE).why
        if plan.step is None or plan.mine is None:
            return "a step that was not planned"
        rows = plan.step, plan.mine
        return self._hk_attention(self._hk_route, rows, plan.reads_cache, layer, call, kv_cache)

    def _hk_decode(
        self, plan: BatchPlan, layer: Any, call: LayerTensors, kv_cache: torch.Tensor
    ) -> str:
        """Writes HK's decode rows like `_hk_prefill`."""
        if routes.is_disabled(DECODE):
            return routes.verdict(DECODE).why
        assert plan.decode is not None
        assert plan.others is not None
        rows = plan.decode, plan.others
        return self._hk_attention(self._hk_decode_route, rows, True, layer, call, kv_cache)

    def _hk_attention(
        self,
        route: AttentionRoute,
        planned: tuple[AttentionStep, Selection],
        reads_cache: bool,
        layer: Any,
        call: LayerTensors,
        kv_cache: torch.Tensor,
    ) -> str:
        """Writes rows, as they are planned, to the output; returns the reason why it did not."""
        step, rows = planned
        try:
            if self._hk_sinks is not None:
                self._hk_float_sinks.of(self._hk_sinks)  # its values may have been loaded anew
            paged = self._hk_paged(layer, kv_cache) if reads_cache else None
            tensors = tensors_of(step, rows, call, paged)
        except Exception as error:
            return self._hk_survive(error, route.name)

        def arguments() -> dict[str, Any]:
            return self._hk_arguments(layer, paged, tensors)

        why = route.compute(step, reads_cache, tensors, arguments)
        if step.gathered and not why:
            rows.scatter(tensors[3], call[3])
        return why

    def _hk_meet_cache(self, layer: Any, kv_cache: torch.Tensor) -> None:
        """Proves the cache that the engine has bound, in a dummy run.

        HK waits for the device here, so that the forward of a request never has to.
        """
        refusal = self._hk_refusal or self._hk_cache_refusal or routes.verdict(ROUTE).why
        if refusal or not kv_cache.numel():
            return
        if kv_cache.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        try:
            self._hk_paged(layer, kv_cache)
        except Exception as error:
            self._hk_survive(error)

    def _hk_survive(self, error: Exception, route: str = ROUTE) -> str:
        """Handles an error in HK, which must not break the engine; returns the reason."""
        if isinstance(error, UnknownCacheForm):
            self._hk_cache_refusal = str(error)
            logger.error("hk_backend: requests with cached tokens are left to vLLM: %s", error)
            return self._hk_cache_refusal
        return survive(logger, error, route)

    def _hk_arguments(
        self, layer: Any, paged: PagedKV | None, tensors: LayerTensors
    ) -> dict[str, Any]:
        """The operator's arguments except the step's."""
        query, key, value, out = tensors
        arguments: dict[str, Any] = {"query": query, "out": out, **self._hk_layer_arguments}
        if self._hk_sinks is not None:
            arguments["sinks"] = self._hk_float_sinks.of(self._hk_sinks)
        if paged is None:
            arguments.update(key=key, value=value)
            return arguments
        arguments["paged_kv"] = paged
        if self._hk_kv_dtype is not self._hk_dtype:
            k_scale, v_scale = self._hk_form.scales(layer)
            arguments.update(k_scale=k_scale, v_scale=v_scale)
        return arguments

    def _hk_paged(self, layer: Any, kv_cache: torch.Tensor) -> PagedKV:
        """Description of the layer's cache, made and proven once per tensor that vLLM binds."""
        address, shape = kv_cache.data_ptr(), kv_cache.shape
        known = self._hk_cache
        if known is not None and known[0] == address and known[1] == shape:
            return known[2]
        typed = kv_cache
        if self._hk_kv_dtype is not None and self._hk_kv_dtype is not kv_cache.dtype:
            typed = kv_cache.view(self._hk_kv_dtype)
        cache = self._hk_form.read(typed, self)
        verdict = cache_verdict(self, cache.block_size)
        if not verdict:
            raise UnknownCacheForm(verdict.why)
        self._hk_prove(cache, layer, kv_cache)
        self._hk_cache = address, shape, cache
        return cache

    def _hk_prove(self, cache: PagedKV, layer: Any, kv_cache: torch.Tensor) -> None:
        def write(key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
            self.do_kv_cache_update(layer, key, value, kv_cache, slots)

        form = (type(self), cache.dtype, kv_cache.shape, *cache.as_ints())
        scales = self._hk_form.scales(layer)
        cache_proof.prove(cache, self._hk_dtype, scales, [kv_cache[SPARE_BLOCK]], write, form)
