"""Checks of what the plugin relies on in vLLM, before anything is patched.

The KV-cache forms are not checked here. They are verified on the running engine, by writing through
the parent's own writer and reading back (hk_backend.engine.cache_proof).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hk_backend.engine.contract import (
    first_refusal,
    has_fields,
    has_members,
    has_parameters,
    verdict_of,
)
from hk_backend.terms.verdict import Verdict, refused
from hk_vllm.linear.contract import check_linear

BATCH_FIELDS = (
    "query_start_loc",
    "query_start_loc_cpu",
    "seq_lens",
    "seq_lens_cpu_upper_bound",
    "num_reqs",
    "num_actual_tokens",
    "max_query_len",
    "max_seq_len",
    "block_table_tensor",
    "slot_mapping",
    "causal",
    "positions",
    "is_prefilling",
)
BUILDER_METHODS = {
    "__init__": ("self", "kv_cache_spec", "layer_names", "vllm_config", "device"),
    "build": ("self", "common_prefix_len", "common_attn_metadata", "fast_build"),
    "build_for_cudagraph_capture": ("self", "common_attn_metadata"),
    "build_for_drafting": ("self", "common_attn_metadata", "draft_index"),
    "update_block_table": ("self", "metadata", "blk_table", "slot_mapping"),
    "get_cudagraph_support": ("vllm_config", "kv_cache_spec"),
    "_init_reorder_batch_threshold": ("self", "reorder_batch_threshold", "supports_spec_as_decode"),
}
FORWARD = (
    "self",
    "layer",
    "query",
    "key",
    "value",
    "kv_cache",
    "attn_metadata",
    "output",
    "output_scale",
    "output_block_scale",
)
CACHE_UPDATE = ("self", "layer", "key", "value", "kv_cache", "slot_mapping")
LAYER = (
    "num_heads",
    "head_size",
    "scale",
    "num_kv_heads",
    "alibi_slopes",
    "sliding_window",
    "kv_cache_dtype",
    "logits_soft_cap",
    "attn_type",
    "kv_sharing_target_layer_name",
)


def check_engine(route: str = "attention") -> Verdict:
    """Whether this vLLM has what `route` relies on; for `hk-backend status` and the plugin."""
    return check_linear() if route == "linear" else verdict_of(_attention)


def _attention() -> list[Verdict]:
    """Whether this vLLM has the classes, signatures and members that every wrapper relies on."""
    from vllm.config import VllmConfig, get_current_vllm_config_or_none  # noqa: F401
    from vllm.platforms import current_platform
    from vllm.v1.attention import backend
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    return [
        has_parameters(register_backend, ("backend", "class_path")),
        has_members(AttentionBackendEnum, ("CUSTOM", "get_path")),
        has_members(backend.AttentionCGSupport, ("NEVER", "UNIFORM_BATCH", "ALWAYS")),
        has_members(backend.AttentionType, ("DECODER",)),
        has_members(backend.AttentionBackend, ("customize_spec", "supported_kv_cache_layouts")),
        _has_batch_fields(backend.CommonAttentionMetadata),
        *_builder_verdicts(backend.AttentionMetadataBuilder),
        has_members(backend.AttentionMetadataBuilder, ("reorder_batch_threshold",)),
        has_parameters(backend.AttentionImpl.forward, FORWARD),
        has_parameters(backend.AttentionImpl.__init__, ("self", *LAYER)),
        has_parameters(current_platform.get_attn_backend_cls, ("selected_backend",)),
        has_members(VllmConfig, ("compute_hash",)),
    ]


def check_parent(parent: Any) -> Verdict:
    """Whether one attention backend can be wrapped."""
    try:
        builder, impl = parent.get_builder_cls(), parent.get_impl_cls()
        if parent.forward_includes_kv_cache_update:
            return refused(f"{parent.__name__}: forward() writes the KV cache itself")
        if parent.is_mla():
            return refused(f"{parent.__name__}: latent attention")
        return first_refusal(
            *_builder_verdicts(builder),
            has_members(builder, ("_cudagraph_support",)),
            has_parameters(impl.forward, FORWARD),
            has_parameters(impl.__init__, ("self", *LAYER)),
            has_parameters(impl.do_kv_cache_update, CACHE_UPDATE),
        )
    except AttributeError as error:
        return refused(f"{parent.__name__}: {error}")


def _builder_verdicts(builder: Any) -> Iterable[Verdict]:
    return [
        has_parameters(getattr(builder, name), parameters)
        for name, parameters in BUILDER_METHODS.items()
    ]


def _has_batch_fields(batch: Any) -> Verdict:
    return first_refusal(
        has_fields(batch, BATCH_FIELDS),
        has_members(batch, ("replace",)),
    )
