"""HK's part of a wrapped backend: the layers that it serves, and each of their prefill calls.

Every call is counted, as served or as left to the parent with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.model_executor.runner_utils.capture_mode import get_is_capture_mode

from hk_backend.engine import loggers
from hk_backend.engine.attention import ROUTE, LayerTensors, survive
from hk_backend.engine.batch_plan import BatchPlan
from hk_backend.engine.strict import StrictError
from hk_backend.ops import PagedKV
from hk_backend.routing.routes import routes
from hk_sglang.attention.batch import PlannedBatch, plan_forward_batch
from hk_sglang.attention.contest import Evidence
from hk_sglang.attention.layers import ServedLayers, layers_of
from hk_sglang.attention.parent_rows import parent_rows
from hk_sglang.attention.parents import PARENTS
from hk_sglang.attention.pools import Caches

logger = loggers.of("sglang", "attention")

NO_PLAN = BatchPlan("metadata of another batch")
CAPTURE = BatchPlan("graph capture", dummy=True)
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
        parent = PARENTS[name]
        self._dtype: torch.dtype = runner.dtype
        self._evidence = Evidence(self, backend, name, runner) if measured else None
        self._planned: PlannedBatch | None = None
        self._planning = False
        self.cache = Caches(self._pool, parent, runner.dtype)
        self._reads_back = parent.reads_fresh_back and self.cache.narrowed
        device_type = torch.device(runner.device).type
        self._layers = ServedLayers(self.cache, runner.dtype, device_type, self._evidence)
        with self._evidence.loading() if self._evidence else nullcontext():
            for layer in layers_of(runner.model):
                self._layers[layer]  # decides on the layer
        self._layers.log(name, parent)

    # -- per batch

    @contextmanager
    def planned(self, batch: Any) -> Iterator[None]:
        """Context for the making of the parent's metadata, whose methods may call each other."""
        if self._planning:
            yield
            return
        self._planning, self._planned = True, None
        try:
            self._planned = self._plan(batch)
            yield
        finally:
            self._planning = False

    def _plan(self, batch: Any) -> PlannedBatch | None:
        if get_is_capture_mode():  # captured work replays without Python, so the parent computes it
            return PlannedBatch(batch, CAPTURE)
        try:
            serves = self._layers.serves()
            planned = plan_forward_batch(
                batch,
                self._pool,
                self._backend.req_to_token_pool.req_to_token,
                routes.verdict(ROUTE).why,
                cache_refusal=self._layers.cache_refusal(),
                why_slower=self._evidence.why_slower if self._evidence else None,
                reads_back=self._reads_back,
                serves=serves,
            )
            if planned is None or planned.plan.theirs is None or not serves:
                return planned
            parent = type(self._backend).__base__
            rows = parent_rows(parent, self._backend, batch, planned.plan.theirs)
            return replace(planned, plan=replace(planned.plan, parent=rows))
        except Exception as error:
            return PlannedBatch(batch, BatchPlan(survive(logger, error)))

    def rehearse(self, batch: Any) -> None:
        """Plans a batch without a request, before the backend is wrapped.

        Its calls count as dummy calls, and HK_CHECK does not compare them.
        """
        with self.planned(batch):
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
        """Computes a layer's extend, in the shape of `q`; None if the parent has to.

        Args:
            q: `[tokens, num_heads * head_size]`.
            k, v: `[tokens, num_kv_heads, head_size]`.
            extra: further arguments of the call, by SGLang's names.
        """
        planned = self._planned
        if planned is None:
            return None
        if planned.batch is not batch:
            planned = PlannedBatch(batch, NO_PLAN)
        plan = planned.plan
        why = self._why(planned, layer, q, k, extra)
        if not why:
            out = torch.empty_like(q)
            why = self._attention(planned, layer, (q, k, v, out), save_kv_cache, extra)
            if not why:
                if plan.parent is not None:
                    plan.parent.attend(q, k, v, layer, extra, out)
                plan.count_served()
                return out
        plan.count_left(why, len(q))
        return None

    def _why(
        self,
        planned: PlannedBatch,
        layer: Any,
        q: torch.Tensor,
        k: torch.Tensor | None,
        extra: dict[str, Any],
    ) -> str:
        """Reason why the parent computes this call; empty if HK may serve it."""
        if routes.is_disabled(ROUTE):
            return routes.verdict(ROUTE).why
        try:
            served, plan = self._layers[layer], planned.plan
        except StrictError:
            raise
        except Exception as error:  # the layer is not one of the model's, and unlike them
            return survive(logger, error)
        sinks = served.sinks_refusal() if extra and extra.get("sinks") is not None else ""
        refusal = served.refusal or sinks or plan.refusal  # the layer's reason comes first
        if refusal:
            return refusal
        if self._evidence and (slower := self._evidence.slower.get(id(served.decision))):
            return slower
        if plan.step is None:
            return NO_STEP
        if served.cache_refusal and plan.reads_cache:
            return served.cache_refusal
        if k is None:
            return "no keys handed over"
        rows = q.shape[0]  # takes a third of the time of `len`
        if rows < planned.num_tokens or k.shape[0] != rows:
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
        self,
        planned: PlannedBatch,
        layer: Any,
        tensors: Any,
        save_kv_cache: bool,
        extra: dict[str, Any],
    ) -> str:
        """Writes HK's attention of query, keys and values to the last of `tensors`.

        Returns the reason if the parent must compute the batch instead. The parent then writes the
        cache again: the same keys to the same slots.
        """
        served, plan, paged = self._layers[layer], planned.plan, None
        q, k, v, out = tensors
        try:
            if save_kv_cache:
                place = KVWriteLoc.for_layer(planned.batch, layer, swa_loc=planned.window_slots)
                self.cache.write(layer, place, k, v)
            if q.shape[0] > planned.num_tokens:
                out[planned.num_tokens :] = 0  # rows of padding
            if plan.reads_cache:
                paged = self.cache.paged(layer.layer_id)
            rows = plan.tensors(tensors, paged)
        except Exception as error:
            return survive(logger, error)
        in_window = plan.reads_cache and served.in_window_pool
        step = planned.window_step if in_window else plan.step
        assert step is not None

        def arguments() -> dict[str, Any]:
            return self._arguments(layer, paged, rows, extra.get("sinks"))

        if plan.dummy:
            served.route.launch(step, plan.reads_cache, rows, arguments)
            return ""
        why = served.route.compute(step, plan.reads_cache, rows, arguments)
        if not why:
            plan.scatter(rows, out)
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
            arguments["sinks"] = sinks.float()
        if paged is None:
            shape = (-1, layer.tp_k_head_num, layer.qk_head_dim)
            return {**arguments, "key": key.view(shape), "value": value.view(shape)}
        arguments["paged_kv"] = paged
        if self.cache.narrowed:
            k_scale, v_scale = self.cache.read_scales(layer)
            arguments.update(k_scale=k_scale, v_scale=v_scale)
        return arguments
