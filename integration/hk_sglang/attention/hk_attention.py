"""HK's part of a wrapped backend: the layers that it serves, and each of their calls.

Every call is counted, as served or as left to the parent with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from hk_backend.devices import device_for
from hk_backend.engine import loggers
from hk_backend.engine.attention import DECODE, ROUTE, AttentionRoute, LayerTensors, survive
from hk_backend.engine.batch_plan import BatchPlan, tensors_of
from hk_backend.engine.rows import Selection
from hk_backend.engine.strict import StrictError
from hk_backend.ops import PagedKV
from hk_backend.routing.routes import routes
from hk_backend.terms.attention_step import AttentionStep
from hk_sglang.attention.batch import PlannedBatch, refuse_call
from hk_sglang.attention.drafts import NOT_A_STEP, DraftStep, is_copy
from hk_sglang.attention.evidence import Evidence
from hk_sglang.attention.layers import ServedLayers, layers_of
from hk_sglang.attention.parents import PARENTS
from hk_sglang.attention.planner import Planner
from hk_sglang.attention.pools import Caches
from hk_sglang.attention.server import query_tokens

logger = loggers.of("sglang", "attention")

NO_PLAN = BatchPlan("metadata of another batch")
NO_STEP = "a layer that the model did not have when its batch was planned"


class HKAttention:
    """HK's attention beside a parent backend.

    Args:
        backend: the parent.
        name: SGLang's name of the parent.
        runner: the runner of the parent.
        measured: whether HK serves only what it computes faster than `backend`.
        decode_refusal: reason why the parent computes decode in any case; empty if there is none.

    Raises:
        StrictError: a layer of the model is not served, with HK_STRICT=1.
    """

    def __init__(
        self,
        backend: Any,
        name: str,
        runner: Any,
        measured: bool = True,
        decode_refusal: str = "",
    ) -> None:
        self._backend = backend
        self._pool = backend.token_to_kv_pool
        parent = PARENTS[name]
        self._dtype: torch.dtype = runner.dtype
        self._evidence = Evidence(name, runner) if measured else None
        self._planned: PlannedBatch | None = None
        self._planning = False
        self.cache = Caches(self._pool, parent, runner.dtype)
        device_type = torch.device(runner.device).type
        known = self.cache, runner.dtype, device_type, self._evidence
        self._layers = ServedLayers(*known, decode_refusal, query_tokens())
        reads_back = parent.reads_fresh_back and self.cache.narrowed
        self._planner = Planner(backend, self._layers, self._evidence, reads_back)
        with self._evidence.loading(self, backend) if self._evidence else nullcontext():
            for layer in layers_of(runner.model):
                self._layers[layer]  # decides on the layer
        self._layers.log(name, parent)
        self._planner.decode = self._layers.decode_rows()

    def beside(
        self, backend: Any, step: DraftStep = NOT_A_STEP, first: HKAttention | None = None
    ) -> HKAttention:
        """HK's part of another backend of the same model (see `Planner.beside`)."""
        found = copy(self)
        found._backend = backend
        found._planner = self._planner.beside(backend, step, first._planner if first else None)
        return found

    def allocate_graphs(self, requests: int, tokens: int) -> None:
        """Allocates memory for graphs of up to `requests` decode rows, with `tokens` in all."""
        self._planner.allocate_graphs(requests, tokens)

    # -- per batch

    def planned(self, batch: Any, replays: bool = False) -> AbstractContextManager[None]:
        """Context for the making of the parent's metadata, whose methods may call each other.

        Args:
            replays: whether a graph of the batch is replayed next, which calls no layer.
        """
        return self._planned_by(self._planner.refill if replays else self._planner.plan, batch)

    @contextmanager
    def _planned_by(self, plan: Callable[[Any], PlannedBatch | None], batch: Any) -> Iterator[None]:
        if self._planning:
            yield
            return
        self._planning, self._planned = True, None
        try:
            self._planned = plan(batch)
            yield
        finally:
            self._planning = False

    def rehearse(self, batch: Any) -> None:
        """Plans a batch without a request, before the backend is wrapped.

        Its calls count as dummy calls, and HK_CHECK does not compare them.
        """
        with self._planned_by(self._planner.rehearsed, batch):
            self._backend.init_forward_metadata(batch)
        assert self._planned is not None
        self._planned = replace(self._planned, plan=replace(self._planned.plan, dummy=True))

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
        """Computes a layer's call, in the shape of `q`; None if the parent has to.

        Args:
            q: `[tokens, num_heads * head_size]`.
            k, v: `[tokens, num_kv_heads, head_size]`.
            extra: further arguments of the call, by SGLang's names.
        """
        planned = self._planned
        if planned is None:
            return None
        if planned.batch is not batch:
            if is_copy(batch, planned.batch):
                planned = self._planned = replace(planned, batch=batch)
            elif batch.forward_mode.is_decode():
                return None
            else:
                planned = PlannedBatch(batch, NO_PLAN)
        plan, tokens = planned.plan, q.shape[0]  # takes a third of the time of `len`
        why = self._why(planned, layer, tokens, q, k, extra)
        if not why:
            out = torch.empty_like(q)
            why = self._attention(planned, layer, tokens, (q, k, v, out), save_kv_cache, extra)
        plan.count(why, tokens, plan.captured and device_for(q.device.type).is_capturing())
        if why:
            return None
        if plan.parent is not None:
            plan.parent.attend(q, k, v, layer, extra, out)
        return out

    def _why(
        self,
        planned: PlannedBatch,
        layer: Any,
        tokens: int,
        q: torch.Tensor,
        k: torch.Tensor | None,
        extra: dict[str, Any],
    ) -> str:
        """Reason why the parent computes this call; empty if HK may serve it."""
        plan = planned.plan
        route = ROUTE if plan.decode is None or plan.mine is not None else DECODE
        if routes.is_disabled(route):
            return routes.verdict(route).why
        if plan.left_decode and plan.mine is None:
            return plan.left_decode
        try:
            served = self._layers[layer]
        except StrictError:
            raise
        except Exception as error:  # the layer is not one of the model's, and unlike them
            return survive(logger, error)
        given_sinks = extra and extra.get("sinks") is not None
        sinks = served.sinks_refusal(plan.decode is not None) if given_sinks else ""
        refusal = served.refusal or sinks or plan.refusal  # the layer's reason comes first
        if refusal:
            return refusal
        if plan.mine is not None:
            if self._evidence and (slower := self._evidence.slower.get(id(served.decision))):
                return slower
            if plan.step is None:
                return NO_STEP
        if served.cache_refusal and (plan.reads_cache or plan.decode is not None):
            return served.cache_refusal
        masked = getattr(self._backend.forward_metadata, "custom_mask", None) is not None
        if masked and not planned.batch.forward_mode.is_target_verify():  # a chain's is causal
            return "a mask of the model's own"
        return refuse_call(planned, tokens, q, k, extra, self._dtype)

    def _attention(
        self,
        planned: PlannedBatch,
        layer: Any,
        tokens: int,
        tensors: Any,
        save_kv_cache: bool,
        extra: dict[str, Any],
    ) -> str:
        """Writes HK's attention of query, keys and values to the last of `tensors`.

        Returns the reason if the parent must compute the batch instead. The parent then writes the
        cache again: the same keys to the same slots.
        """
        plan, (_, k, v, out) = planned.plan, tensors
        try:
            if save_kv_cache:
                place = KVWriteLoc.for_layer(planned.batch, layer, swa_loc=planned.window_slots)
                self.cache.write(layer, place, k, v)
            if tokens > planned.num_tokens:
                out[planned.num_tokens :] = 0  # rows of padding
        except Exception as error:
            return survive(logger, error, ROUTE if plan.mine is not None else DECODE)
        why = ""
        served, call = self._layers[layer], (plan.dummy, layer, tensors, extra)
        if plan.step is not None and plan.mine is not None:
            in_window = plan.reads_cache and served.in_window_pool
            step = planned.window_step if in_window else plan.step
            why = self._launch(served.route, step, plan.mine, plan.reads_cache, *call)
        if not why and plan.decode is not None:
            step = planned.window_decode if served.in_window_pool else plan.decode
            why = self._launch(served.decode_route, step, plan.others, True, *call)
        return why

    def _launch(
        self,
        route: AttentionRoute,
        step: AttentionStep | None,
        rows: Selection | None,
        reads_cache: bool,
        dummy: bool,
        layer: Any,
        tensors: Any,
        extra: dict[str, Any],
    ) -> str:
        """Writes `rows`, as they are planned, to the last of `tensors`.

        Returns the reason if the parent must compute them.
        """
        assert step is not None
        assert rows is not None
        sinks = extra.get("sinks")
        try:
            if sinks is not None:
                sinks = self._layers[layer].sinks.of(sinks)
            paged = self.cache.paged(layer.layer_id) if reads_cache else None
            own = tensors_of(step, rows, tensors, paged)
        except Exception as error:
            return survive(logger, error, route.name)

        def arguments() -> dict[str, Any]:
            return self._arguments(layer, paged, own, sinks)

        if dummy:
            route.launch(step, reads_cache, own, arguments)
            return ""
        why = route.compute(step, reads_cache, own, arguments)
        if step.gathered and not why:
            rows.scatter(own[3], tensors[3])
        return why

    def _arguments(
        self, layer: Any, paged: PagedKV | None, tensors: LayerTensors, sinks: torch.Tensor | None
    ) -> dict[str, Any]:
        """The operator's arguments except the step's.

        Keys and values come from where the parent would read them.
        """
        served = self._layers[layer]
        query, key, value, out = tensors
        heads = (-1, layer.tp_q_head_num, layer.qk_head_dim)
        arguments = {"query": query.view(heads), "out": out.view(heads), **served.arguments}
        if sinks is not None:
            arguments["sinks"] = sinks
        if paged is None:
            shape = (-1, layer.tp_k_head_num, layer.qk_head_dim)
            return {**arguments, "key": key.view(shape), "value": value.view(shape)}
        arguments["paged_kv"] = paged
        if self.cache.narrowed:
            k_scale, v_scale = self.cache.read_scales(layer)
            arguments.update(k_scale=k_scale, v_scale=v_scale)
        return arguments
