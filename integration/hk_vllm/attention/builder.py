"""Per step: what the parent would build, and beside it the plan of HK's rows."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from vllm.v1.attention.backend import AttentionCGSupport

from hk_backend.engine import evidence, loggers, named_device
from hk_backend.engine.attention import Step, plan_step, survive
from hk_backend.engine.strict import refuse
from hk_vllm.attention.cache_forms import CacheForm
from hk_vllm.attention.layer import cache_verdict
from hk_vllm.attention.rows import RowSplit, prefill_tokens, split_rows
from hk_vllm.attention.unbuilt import build, is_built, metadata_class_of, unbuilt

if TYPE_CHECKING:
    from vllm.v1.attention.backend import AttentionMetadataBuilder as Parent
else:
    Parent = object


logger = loggers.of("vllm", "attention")


@dataclass(frozen=True, slots=True)
class Plan:
    """What HK does with one batch; hangs on the parent's metadata as `hk`.

    With a `refusal` the whole batch is the parent's and `parent_tokens` of it were prefill.
    Otherwise HK computes the tokens of `step` (None: it serves no layer), whose tensors are slices
    of the engine's own (its `query_start_loc` counts from the start of the whole batch), and the
    parent, with the metadata `parent`, the tokens before them.
    """

    refusal: str = ""
    dummy: bool = False
    tokens: int = 0
    parent_tokens: int = 0
    parent_why: str = ""
    reads_cache: bool = False
    first_row: int = 0
    last_row: int = 0
    first_token: int = 0
    last_token: int = 0
    step: Step | None = None
    parent: Any = None


CAPTURE = Plan(refusal="graph capture", dummy=True)


def weaker(support: AttentionCGSupport) -> AttentionCGSupport:
    """Graphs replay without Python, so HK is in none: only uniform decode batches may have one."""
    limit = AttentionCGSupport.UNIFORM_BATCH
    return support if support.value < limit.value else limit


class HKBuilder(Parent):  # type: ignore[misc]
    """Mixin over a parent's metadata builder."""

    hk_form: ClassVar[CacheForm]

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
            # ask the runner for decode rows first; a runner that ignores it is survived (rows.py)
            self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)
        speculative = vllm_config.speculative_config
        self._hk_refusal = refuse(
            refuse_parallel(vllm_config.parallel_config) or refuse_speculation(speculative)
        )
        impls = served_impls(vllm_config, layer_names)
        self._hk_cache_refusal = refuse(
            self.hk_form.refusal(self) or refuse_cache(impls, kv_cache_spec.block_size)
        )
        for impl in impls:
            impl._hk_cache_refusal = self._hk_cache_refusal
        self._hk_losses = impls[0]._hk_losses if impls else ()
        for why in () if impls else refusals(vllm_config, layer_names):
            said = "hk_backend: no attention layer is computed by HK: %s"
            logger.log(named_device.level(served=0), said, why)
        drafts = getattr(speculative, "num_speculative_tokens", None) or 0
        self._hk_verification_len = 1 + drafts
        self._hk_serves = bool(impls)
        self._hk_metadata_class = metadata_class_of(type(self)) if impls else None

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

        plan = None
        if common_attn_metadata.max_query_len > 1:
            plan = self._hk_plan(common_attn_metadata, fast_build, build_parent)
        mine = plan is not None and not plan.refusal
        if mine and self._hk_metadata_class is not None:
            batch = copy(common_attn_metadata)  # the runner sets other fields for the next group
            metadata = unbuilt(self._hk_metadata_class, lambda: build_parent(batch))
        else:
            metadata = build_parent(common_attn_metadata)
        metadata.hk = plan
        return metadata

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        metadata = build(super().build_for_cudagraph_capture(common_attn_metadata))
        # captured kernels are replayed with other numbers than this batch's: the parent's only
        metadata.hk = CAPTURE
        return metadata

    def build_for_drafting(self, common_attn_metadata: Any, draft_index: int) -> Any:
        metadata = build(super().build_for_drafting(common_attn_metadata, draft_index))
        if not hasattr(metadata, "hk"):  # a parent that does not go through build()
            metadata.hk = None
        return metadata

    def update_block_table(
        self, metadata: Any, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> Any:
        def update() -> Any:
            return super(HKBuilder, self).update_block_table(metadata, blk_table, slot_mapping)

        plan: Plan | None = metadata.hk
        known = self._hk_metadata_class
        updated = update() if is_built(metadata) or known is None else unbuilt(known, update)
        if plan is not None and plan.step is not None:
            parent = plan.parent
            if parent is not None:
                parent = super().update_block_table(
                    parent, blk_table[: plan.first_row], slot_mapping[: plan.first_token]
                )
            step = plan.step.with_block_table(blk_table[plan.first_row : plan.last_row])
            plan = replace(plan, step=step, parent=parent)
        updated.hk = plan
        return updated

    def _hk_plan(self, batch: Any, fast_build: bool, build_parent: Any) -> Plan | None:
        """The plan of a batch in which some row has more than one query token."""
        starts = batch.query_start_loc_cpu[: batch.num_reqs + 1].numpy()
        refusal = self._hk_refusal or refuse_batch(batch, fast_build)
        if not refusal and self._hk_is_verification(batch):
            refusal = "speculative verification"
        if refusal:
            return Plan(refusal=refusal, parent_tokens=prefill_tokens(starts))
        lengths = host_seq_lens(batch)[: batch.num_reqs].numpy()
        split = split_rows(starts, lengths, self._hk_cache_refusal)
        if split.delegated:
            if not split.parent_tokens:
                return None
            return Plan(refusal=split.why, parent_tokens=split.parent_tokens)
        slower = evidence.why_not_step(self._hk_losses, batch.max_query_len)
        if slower:
            return Plan(refusal=slower, parent_tokens=split.parent_tokens + split.tokens)
        rows = slice(split.first_row, split.last_row)
        step = None
        try:
            if self._hk_serves:
                step = plan_step(
                    batch.query_start_loc[split.first_row : split.last_row + 1],
                    split.last_token,
                    batch.seq_lens[rows],
                    batch.block_table_tensor[rows],
                )
        except Exception as error:  # whatever breaks in HK must not break the engine
            tokens = split.parent_tokens + split.tokens
            return Plan(refusal=survive(logger, error), parent_tokens=tokens)
        parent = None
        if split.first_token:
            parent = build_parent(head_of(batch, split, starts, lengths))
        return Plan(
            tokens=split.tokens,
            parent_tokens=split.parent_tokens,
            parent_why=split.why,
            reads_cache=split.reads_cache,
            first_row=split.first_row,
            last_row=split.last_row,
            first_token=split.first_token,
            last_token=split.last_token,
            step=step,
            parent=parent,
        )

    def _hk_is_verification(self, batch: Any) -> bool:
        """Whether every row is a decode whose drafts are being verified."""
        if batch.max_query_len > self._hk_verification_len:
            return False
        prefilling = batch.is_prefilling
        return prefilling is None or not bool(prefilling[: batch.num_reqs].any())


def served_impls(vllm_config: Any, layer_names: list[str]) -> list[Any]:
    """The implementations of those layers that HK serves."""
    layers = vllm_config.compilation_config.static_forward_context
    impls = [layers[name].impl for name in layer_names if name in layers]
    return [impl for impl in impls if not getattr(impl, "_hk_refusal", "not HK's")]


def refusals(vllm_config: Any, layer_names: list[str]) -> list[str]:
    """Why those layers are left to vLLM, each reason once."""
    layers = vllm_config.compilation_config.static_forward_context
    found = [
        getattr(layers[name].impl, "_hk_refusal", "") for name in layer_names if name in layers
    ]
    return [why for why in dict.fromkeys(found) if why]


def refuse_cache(impls: list[Any], block_size: int) -> str:
    """Caches that the device does not read for the layers that HK serves."""
    return next((why for impl in impls if (why := cache_verdict(impl, block_size).why)), "")


def refuse_parallel(parallel: Any) -> str:
    """Ways to split a batch or a sequence over devices that HK does not understand."""
    if parallel.decode_context_parallel_size > 1:
        return "decode context parallelism"
    if getattr(parallel, "prefill_context_parallel_size", 1) > 1:
        return "prefill context parallelism"
    if getattr(parallel, "use_ubatching", False):
        return "batches split into microbatches"
    return ""


def refuse_speculation(speculative: Any) -> str:
    """Speculation after which rows begin elsewhere on the device than the host believes."""
    if getattr(speculative, "enable_adaptive_verification", False):
        return "adaptive verification"
    return ""


def refuse_batch(batch: Any, fast_build: bool) -> str:
    """Batches that only the parent understands."""
    if fast_build:
        return "drafting"
    if batch.causal is not True:
        return "not causal"
    if getattr(batch, "mm_req_doc_ranges", None):
        return "bidirectional ranges in a multimodal prompt"
    if getattr(batch, "rswa_prefix_lens", None) is not None:
        return "reference sliding window"
    if getattr(batch, "encoder_seq_lens", None) is not None:
        return "cross attention"
    if host_seq_lens(batch) is None:
        return "no sequence lengths on the host"
    return ""


def host_seq_lens(batch: Any) -> Any:
    """Keys of each row on the host, without a device sync; exact on prefill rows."""
    if batch.seq_lens_cpu_upper_bound is not None:
        return batch.seq_lens_cpu_upper_bound
    return batch.seq_lens if batch.seq_lens.device.type == "cpu" else None


def head_of(batch: Any, split: RowSplit, starts: Any, lengths: Any) -> Any:
    """The batch of the rows before HK's, as if the runner had sent only those."""
    rows = split.first_row
    head = batch.unpadded(split.first_token, rows)
    return head.replace(
        max_query_len=int((starts[1 : rows + 1] - starts[:rows]).max()),
        max_seq_len=int(lengths[:rows].max()),
        positions=None if batch.positions is None else batch.positions[: split.first_token],
    )
