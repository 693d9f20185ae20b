"""Builds per step the parent's metadata, and beside it the plan of HK's rows."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder

from hk_backend.config import get_config
from hk_backend.engine import loggers
from hk_backend.engine.attention import DECODE, ROUTE, survive
from hk_backend.engine.batch_plan import (
    BatchPlan,
    left_whole,
    plan_batch,
    plan_capture,
    plan_decode,
)
from hk_backend.engine.cache_proof import UnknownCacheForm
from hk_backend.engine.loaded import model_is_loaded
from hk_backend.engine.strict import refuse
from hk_backend.routing.routes import routes
from hk_vllm.attention.batch import batch_of, describe_batch, refuse_batch
from hk_vllm.attention.cache_forms import CacheForm
from hk_vllm.attention.decode import rows_of
from hk_vllm.attention.layer import cache_verdict
from hk_vllm.attention.lazy_metadata import build, is_built, lazy, metadata_class_of

Parent: Any = object
"""Base of a mixin: mypy then lets it call methods of whatever parent it is mixed into."""


logger = loggers.of("vllm", "attention")


CAPTURE = BatchPlan("graph capture", dummy=True)


def weaker(support: AttentionCGSupport) -> AttentionCGSupport:
    """Limits graphs to uniform decode batches, as a graph would repeat a prefill's lengths."""
    limit = AttentionCGSupport.UNIFORM_BATCH
    return support if support.value < limit.value else limit


class HKBuilder(Parent):  # type: ignore[misc]
    """Mixin over a parent's metadata builder."""

    hk_form_of: ClassVar[staticmethod[[Any], CacheForm]]

    def __init__(
        self,
        kv_cache_spec: Any,
        layer_names: list[str],
        vllm_config: Any,
        device: Any,
        **extra: Any,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device, **extra)
        if self.reorder_batch_threshold is None:
            # asks the runner for decode rows first; rows.py copes with a runner that ignores it
            self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)
        speculative = vllm_config.speculative_config
        self._hk_refusal = refuse(
            refuse_parallel(vllm_config.parallel_config) or refuse_speculation(speculative)
        )
        layers = vllm_config.compilation_config.static_forward_context
        known = [layers[name].impl for name in layer_names if name in layers]
        impls = [impl for impl in known if getattr(impl, "_hk_refusal", None) == ""]
        self._hk_cache_refusal = refuse(
            self._hk_tell_form(impls) or refuse_cache(impls, kv_cache_spec.block_size)
        )
        for impl in impls:
            impl._hk_cache_refusal = self._hk_cache_refusal
        decisions = [impl._hk_decision for impl in impls]
        self._hk_decisions = {each.kind: each for each in decisions}.values()
        model_is_loaded("vLLM", logger, self.device.type)
        left = dict.fromkeys(getattr(impl, "_hk_refusal", "") for impl in known)
        for why in () if impls else filter(None, left):
            said = "hk_backend: no attention layer is computed by HK: %s"
            logger.log(loggers.level(served=0), said, why)
        self._hk_drafts = getattr(speculative, "num_speculative_tokens", None) or 0
        unreadable = self._hk_refusal or self._hk_cache_refusal
        self._hk_decode_rows = (
            None
            if unreadable
            else rows_of(impls, len(known), kv_cache_spec.block_size, 1 + self._hk_drafts)
        )
        is_route = not unreadable and DECODE in get_config().backend
        self._hk_decode_is_left = is_route and self._hk_decode_rows is None
        self._hk_drafting_refusal = refuse_drafting(speculative)
        self._hk_serves = bool(impls)
        self._hk_metadata_class = metadata_class_of(type(self)) if impls else None

    def _hk_tell_form(self, impls: list[Any]) -> str:
        """Tells layers the form of their cache, or returns the reason why HK does not read it."""
        try:
            form = self.hk_form_of(self)
        except UnknownCacheForm as error:
            return str(error)
        for impl in impls:
            impl._hk_form = form
        return ""

    @classmethod
    def get_cudagraph_support(cls, vllm_config: Any, kv_cache_spec: Any) -> AttentionCGSupport:
        return weaker(super().get_cudagraph_support(vllm_config, kv_cache_spec))

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: Any,
        fast_build: bool = False,
        **extra: Any,
    ) -> Any:
        def build_parent(batch: Any) -> Any:
            return super(HKBuilder, self).build(common_prefix_len, batch, fast_build, **extra)

        return self._hk_build(common_attn_metadata, build_parent, drafting=fast_build)

    def _hk_build(self, batch: Any, build_parent: Callable[[Any], Any], drafting: bool) -> Any:
        """Builds the step's metadata: an object of the parent's own class, with HK's plan."""
        plan = None
        if batch.max_query_len > 1 or self._hk_decode_rows is not None:
            plan = self._hk_plan(batch, build_parent, drafting)
        # a replayed graph of decode rows may be the parent's, and needs its metadata
        mine = plan is not None and plan.mine is not None
        if mine and self._hk_metadata_class is not None:
            batch = copy(batch)  # the runner sets other fields for the next group
            metadata = lazy(self._hk_metadata_class, lambda: build_parent(batch))
        else:
            metadata = build_parent(batch)
        metadata.hk = plan
        return metadata

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        metadata = build(super().build_for_cudagraph_capture(common_attn_metadata))
        # captured kernels are replayed with other numbers than this batch's
        metadata.hk = self._hk_plan_capture(common_attn_metadata) or CAPTURE
        return metadata

    def _hk_plan_capture(self, batch: Any) -> BatchPlan | None:
        """Plan of a uniform batch of decode rows; None if the graph is to be the parent's."""
        if self._hk_decode_rows is None or refuse_batch(batch):
            return None
        if self._hk_drafts and batch.max_query_len == 1:  # the rows of a draft model
            return None
        try:
            longest = batch.max_query_len
            why = self._hk_decode_rows.why_not(batch.num_reqs, longest)
            return None if why else plan_capture(describe_batch(batch, self._hk_drafts), longest)
        except Exception as error:  # an error in HK must not break the engine
            survive(logger, error, DECODE)
            return None

    def build_for_drafting(self, common_attn_metadata: Any, draft_index: int) -> Any:
        parents = super().build_for_drafting
        if parents.__func__ is AttentionMetadataBuilder.build_for_drafting:  # it calls build()
            return build(self.build(0, common_attn_metadata, fast_build=True))

        def build_parent(batch: Any) -> Any:
            # built now, as a draft's steps follow each other on the device
            return build(parents(batch, draft_index))

        return build(self._hk_build(common_attn_metadata, build_parent, drafting=True))

    def update_block_table(
        self, metadata: Any, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> Any:
        def update() -> Any:
            return super(HKBuilder, self).update_block_table(metadata, blk_table, slot_mapping)

        plan: BatchPlan | None = metadata.hk
        known = self._hk_metadata_class
        updated = update() if is_built(metadata) or known is None else lazy(known, update)
        if plan is not None:
            updated.hk = self._hk_with_block_table(plan, blk_table, slot_mapping)
        else:
            updated.hk = None
        return updated

    def _hk_with_block_table(
        self, plan: BatchPlan, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> BatchPlan:
        """The same rows in other cache blocks."""
        if plan.step is None and plan.decode is None:
            return plan
        mine, others, parent = plan.mine, plan.others, plan.parent
        step, decode = plan.step, plan.decode
        if others is not None and parent is not None:
            table, slots = others.of_rows(blk_table), others.of_tokens(slot_mapping)
            parent = super().update_block_table(parent, table, slots)
        if step is not None and mine is not None and plan.reads_cache:
            step = step.with_block_table(mine.of_rows(blk_table))
        if decode is not None and others is not None:
            decode = decode.with_block_table(others.of_rows(blk_table))
        return replace(plan, step=step, decode=decode, parent=parent)

    def _hk_plan(
        self, batch: Any, build_parent: Callable[[Any], Any], drafting: bool
    ) -> BatchPlan | None:
        """Plans a batch, whose decode rows may be HK's, too."""
        starts = batch.query_start_loc_cpu[: batch.num_reqs + 1].numpy()
        refusal = self._hk_refusal or refuse_batch(batch)
        if batch.max_query_len > 1:
            refusal = refusal or routes.verdict(ROUTE).why
            refusal = refusal or (self._hk_drafting_refusal if drafting else "")
            if refusal:
                return left_whole(refusal, starts)
        elif refusal or drafting:
            return None
        else:
            return self._hk_plan_decode(batch)
        rows = self._hk_decode_rows
        try:
            plan = plan_batch(
                describe_batch(batch, self._hk_drafts),
                self._hk_cache_refusal,
                self._hk_why_slower,
                serves=self._hk_serves,
                why_not_decode=rows.why_not if rows else None,
                decode_is_left=self._hk_decode_is_left,
            )
        except Exception as error:  # an error in HK must not break the engine
            return left_whole(survive(logger, error), starts)
        if plan is None or plan.others is None or plan.mine is None:
            return plan
        if plan.decode is not None:
            return plan
        return replace(plan, parent=build_parent(batch_of(batch, plan.others)))

    def _hk_plan_decode(self, batch: Any) -> BatchPlan | None:
        """Plans a batch in which no row has more than one query token."""
        assert self._hk_decode_rows is not None
        try:
            if why := self._hk_decode_rows.why_not(batch.num_reqs, 1):
                return BatchPlan(left_decode=why, decode_tokens=batch.num_actual_tokens)
            return plan_decode(describe_batch(batch, self._hk_drafts))
        except Exception as error:  # an error in HK must not break the engine
            survive(logger, error, DECODE)
            return None

    def _hk_why_slower(self, longest: int) -> str:
        """Reason why the parent computes a step whose longest row has `longest` query tokens.

        The reason is a layer of the group that would be slower; empty if there is none.
        """
        return next((why for each in self._hk_decisions if (why := each.why_not(longest))), "")


def refuse_cache(impls: list[Any], block_size: int) -> str:
    """Reason why the device does not read the caches of the layers that HK serves; or empty."""
    return next((why for impl in impls if (why := cache_verdict(impl, block_size).why)), "")


def refuse_parallel(parallel: Any) -> str:
    """Reason why HK does not support how a batch or a sequence is split over devices; or empty."""
    if parallel.decode_context_parallel_size > 1:
        return "decode context parallelism"
    if getattr(parallel, "prefill_context_parallel_size", 1) > 1:
        return "prefill context parallelism"
    if getattr(parallel, "use_ubatching", False):
        return "batches split into microbatches"
    return ""


def refuse_speculation(speculative: Any) -> str:
    """Reason to refuse speculation whose rows begin elsewhere than the host believes; or empty."""
    if getattr(speculative, "enable_adaptive_verification", False):
        return "adaptive verification"
    return ""


def refuse_drafting(speculative: Any) -> str:
    """Reason to refuse drafters whose first pass has other tokens than the target's; or empty.

    Such drafters add slots to every row.
    """
    eagle = speculative is not None and speculative.use_eagle()
    return "" if eagle and not speculative.parallel_drafting else "drafting"
