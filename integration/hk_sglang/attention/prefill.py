"""HK's part of a wrapped backend: the layers that it serves, and each of their prefill calls.

Every call is counted, as served or as left to the parent with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.model_executor.runner_utils.capture_mode import get_is_capture_mode

from hk_backend.devices import device_for
from hk_backend.engine import loggers
from hk_backend.engine.attention import ROUTE, LayerTensors, survive
from hk_backend.engine.strict import StrictError, refuse
from hk_backend.ops import PagedKV
from hk_backend.routing.metrics import count
from hk_backend.routing.routes import routes
from hk_sglang.attention.batch import Plan, plan_batch
from hk_sglang.attention.caches import Caches
from hk_sglang.attention.contest import Evidence
from hk_sglang.attention.layers import ServedLayer, judge, layers_of
from hk_sglang.attention.parent_rows import ParentRows, parent_rows
from hk_sglang.attention.parents import PARENTS

logger = loggers.of("sglang", "attention")

NO_PLAN = "metadata of another batch"
NO_STEP = "a layer that the model did not have when its batch was planned"


class HKPrefill:
    """HK's prefill beside a parent backend.

    Args:
        backend: the parent.
        name: SGLang's name of the parent.
        runner: the runner of the parent.
        measured: whether HK serves only what it computes faster than `backend`.

    Raises:
        StrictError: a layer of the model is not served, with HK_STRICT=1.
    """

    def __init__(self, backend: Any, name: str, runner: Any, measured: bool = True) -> None:
        self._backend = backend
        self._pool = backend.token_to_kv_pool
        self._parent = PARENTS[name]
        self._dtype: torch.dtype = runner.dtype
        self._device_type = torch.device(runner.device).type
        self._evidence = Evidence(self, backend, name, runner) if measured else None
        self._plan: Plan | None = None
        self._planning = False
        self._theirs: ParentRows | None = None
        self._layers: dict[Any, ServedLayer] = {}
        self.cache = Caches(self._pool, self._parent, runner.dtype)
        self._reads_back = self._parent.reads_fresh_back and self.cache.narrowed
        with self._evidence.loading() if self._evidence else nullcontext():
            for layer in layers_of(runner.model):
                self._served(layer)
        self._say(name)

    def _say(self, name: str) -> None:
        """Logs in one line what is routed, and in one line each reason why layers are not."""
        left = Counter(layer.refusal for layer in self._layers.values() if layer.refusal)
        served = len(self._layers) - left.total()
        if served:
            device = device_for(self._device_type).name
            said = "hk_backend: prefill attention of %d layers is computed by HK on %s, beside %s"
            logger.info(said, served, device, name)
        if not self._layers:
            logger.warning("hk_backend: no attention layers that HK knows; %s serves all", name)
        capped = any(layer.request.logits_soft_cap for layer in self._layers.values())
        if served and capped and not self._parent.caps_logits:
            said = "hk_backend: %s leaves out the model's logit cap, in decode too; HK has it"
            logger.warning(said, name)
        for why, layers in left.items():
            logger.warning("hk_backend: %d layers left to %s: %s", layers, name, why)
        for why in {layer.cache_refusal for layer in self._layers.values()} - {""}:
            logger.warning("hk_backend: requests with cached tokens are left to %s: %s", name, why)

    def _served(self, layer: Any) -> ServedLayer:
        """HK's knowledge of `layer`, found once; its cache is proven then."""
        served = self._layers.get(layer)
        if served is None:
            served = judge(layer, self._pool, self._dtype, self._device_type)
            self._layers[layer] = served
            if not served.refusal and not served.cache_refusal:
                served.cache_refusal = self.cache.prove(layer)
            if not served.refusal and self._evidence:
                served.decision = self._evidence.decision_on(layer, served.request)
                served.refusal = served.decision.somewhere.why
            refuse(served.refusal or served.cache_refusal)
        return served

    # -- per batch

    @contextmanager
    def planned(self, batch: Any) -> Iterator[None]:
        """Context for the making of the parent's metadata, whose methods may call each other."""
        if self._planning:
            yield
            return
        self._planning, self._plan, self._theirs = True, None, None
        try:
            self._plan = self._plan_of(batch)
            yield
        finally:
            self._planning = False

    def _plan_of(self, batch: Any) -> Plan | None:
        if get_is_capture_mode():  # captured work replays without Python, so the parent computes it
            return Plan(batch, "graph capture", dummy=True)
        try:
            table = self._backend.req_to_token_pool.req_to_token
            served = [layer for layer in self._layers.values() if not layer.refusal]
            unreadable = next((layer.cache_refusal for layer in served if layer.cache_refusal), "")
            plan = plan_batch(
                batch,
                self._pool,
                table,
                self._reads_back,
                self._evidence.why_slower if self._evidence else None,
                bool(served),
                unreadable,
                routes.verdict(ROUTE).why,
            )
            if plan is not None and plan.theirs is not None and served:
                parent = type(self._backend).__base__
                self._theirs = parent_rows(parent, self._backend, batch, plan.theirs)
            return plan
        except Exception as error:
            return Plan(batch, survive(logger, error))

    def rehearse(self, batch: Any) -> None:
        """Plans a batch without a request, before the backend is wrapped.

        Its calls count as dummy calls, and HK_CHECK does not compare them.
        """
        with self.planned(batch):
            self._backend.init_forward_metadata(batch)
        assert self._plan is not None
        self._plan = replace(self._plan, dummy=True)

    # -- per layer

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Any,
        batch: Any,
        save_kv_cache: bool,
        extra: dict[str, Any],
    ) -> torch.Tensor | None:
        """Computes a layer's extend, in the shape of `q`; None if the parent has to.

        Args:
            q: `[tokens, num_heads * head_size]`.
            k, v: `[tokens, num_kv_heads, head_size]`.
            extra: further arguments of the call, by SGLang's names.
        """
        plan = self._plan
        if plan is None:
            return None
        if plan.batch is not batch:
            plan = Plan(batch, NO_PLAN)
        why = self._why(plan, layer, q, k, extra)
        if not why:
            out = torch.empty_like(q)
            why = self._attention(plan, layer, (q, k, v, out), save_kv_cache, extra)
            if not why:
                assert k is not None
                assert v is not None
                if self._theirs is not None:
                    self._theirs.attend(q, k, v, layer, extra, out)
                count(ROUTE, "dummy" if plan.dummy else "served", plan.tokens)
                _count_left(plan.left or {})
                return out
        if plan.dummy:
            count(ROUTE, "dummy", len(q))
        else:
            _count_left(plan.left_because(why, len(q)))
        return None

    def _why(
        self, plan: Plan, layer: Any, q: torch.Tensor, k: torch.Tensor | None, extra: dict[str, Any]
    ) -> str:
        """Reason why the parent computes this call; empty if HK may serve it."""
        if routes.is_disabled(ROUTE):
            return routes.verdict(ROUTE).why
        served = self._layers.get(layer)
        if served is None:
            try:
                served = self._served(layer)
            except StrictError:
                raise
            except Exception as error:  # the layer is not one of the model's, and unlike them
                return survive(logger, error)
        sinks = "" if extra.get("sinks") is None else served.sinks_refusal()
        refusal = served.refusal or sinks or plan.refusal  # the layer's reason comes first
        if refusal:
            return refusal
        if self._evidence and (slower := self._evidence.slower.get(id(served.decision))):
            return slower
        if plan.step is None:
            return NO_STEP
        if served.cache_refusal and plan.paged:
            return served.cache_refusal
        if k is None:
            return "no keys handed over"
        rows = q.size(0)  # takes a fifth of the time of `len`
        if rows < plan.num_tokens or k.size(0) != rows:
            return "queries or keys of other tokens than the batch's"
        if q.dtype is not self._dtype or k.dtype is not self._dtype:
            return f"query in {q.dtype}, keys in {k.dtype}"
        if getattr(self._backend.forward_metadata, "custom_mask", None) is not None:
            return "a mask of the model's own"
        if not extra:
            return ""
        given = [name for name, value in extra.items() if value is not None and name != "sinks"]
        return f"argument {given[0]} of the call" if given else ""

    def _attention(
        self, plan: Plan, layer: Any, tensors: Any, save_kv_cache: bool, extra: dict[str, Any]
    ) -> str:
        """Writes HK's attention of query, keys and values to the last of `tensors`.

        Returns the reason if the parent must compute the batch instead. The parent then writes the
        cache again: the same keys to the same slots.
        """
        served = self._layers[layer]
        step, mine, paged = plan.step, plan.mine, None
        q, k, v, out = tensors
        try:
            if save_kv_cache:
                place = KVWriteLoc.for_layer(plan.batch, layer, swa_loc=plan.window_slots)
                self.cache.write(layer, place, k, v)
            if q.size(0) > plan.num_tokens:
                out[plan.num_tokens :] = 0  # rows of padding
            assert mine is not None
            if plan.paged:
                paged = self.cache.paged(layer.layer_id)
                k, v = paged.key.tensor, paged.value.tensor
                if served.in_window_pool:
                    step = plan.window_step
            elif mine.gathered:
                k, v = mine.of_tokens(k), mine.of_tokens(v)
            part = mine.room(out) if mine.gathered else out
            rows = (mine.of_tokens(q) if mine.gathered else q, k, v, part)
        except Exception as error:
            return survive(logger, error)
        assert step is not None

        def arguments() -> dict[str, Any]:
            return self._arguments(layer, paged, rows, extra.get("sinks"))

        if plan.dummy:
            served.route.launch(step, plan.paged, rows, arguments)
            return ""
        why = served.route.compute(step, plan.paged, rows, arguments)
        if not why:
            mine.put(part, out)
        return why

    def _arguments(
        self,
        layer: Any,
        paged: PagedKV | None,
        tensors: LayerTensors,
        sinks: torch.Tensor | None,
    ) -> dict[str, Any]:
        """The operator's arguments except the step's.

        Keys and values come from where the parent would read them.
        """
        served = self._layers[layer]
        query, key, value, out = tensors
        heads = (-1, layer.tp_q_head_num, layer.qk_head_dim)
        arguments = {"query": query.view(heads), "out": out.view(heads), **served.arguments}
        if sinks is not None:
            arguments["sinks"] = sinks.float()
        if paged is None:
            shape = (-1, layer.tp_k_head_num, layer.qk_head_dim)
            return {**arguments, "key": key.view(shape), "value": value.view(shape)}
        arguments["paged_kv"] = paged
        if self.cache.narrowed:
            k_scale, v_scale = self.cache.read_scales(layer)
            arguments.update(k_scale=k_scale, v_scale=v_scale)
        return arguments


def _count_left(left: Mapping[str, int]) -> None:
    for why, tokens in left.items():
        count(ROUTE, "fallback", tokens, why)
