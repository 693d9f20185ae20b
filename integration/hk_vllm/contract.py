"""Checks of what the plugin relies on in vLLM, before anything is patched.

The KV-cache forms are not checked here. They are verified on the running engine, by writing through
the parent's own writer and reading back (hk_backend.engine.cache_proof).
"""

from __future__ import annotations

from typing import Any

from hk_backend.engine.contract import keeps, verdict_of
from hk_backend.terms.verdict import Verdict, refused
from hk_vllm.linear.contract import check_linear

BATCH_FIELDS = (
    "query_start_loc, query_start_loc_cpu, seq_lens, seq_lens_cpu_upper_bound, num_reqs, "
    "num_actual_tokens, max_query_len, max_seq_len, block_table_tensor, slot_mapping, causal, "
    "positions, is_prefilling"
)
BUILDER = (
    "__init__(self, kv_cache_spec, layer_names, vllm_config, device)",
    "build(self, common_prefix_len, common_attn_metadata, fast_build)",
    "build_for_cudagraph_capture(self, common_attn_metadata)",
    "build_for_drafting(self, common_attn_metadata, draft_index)",
    "update_block_table(self, metadata, blk_table, slot_mapping)",
    "get_cudagraph_support(vllm_config, kv_cache_spec)",
    "_init_reorder_batch_threshold(self, reorder_batch_threshold, supports_spec_as_decode)",
)
FORWARD = (
    "forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale, "
    "output_block_scale)"
)
LAYER = (
    "__init__(self, num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, "
    "kv_cache_dtype, logits_soft_cap, attn_type, kv_sharing_target_layer_name)"
)
CACHE_UPDATE = "do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping)"

ATTENTION = {
    "vllm.config": ("get_current_vllm_config_or_none", "VllmConfig.compute_hash"),
    "vllm.platforms": ("current_platform.get_attn_backend_cls(selected_backend)",),
    "vllm.v1.attention.backends.registry": (
        "register_backend(backend, class_path)",
        "AttentionBackendEnum has CUSTOM, get_path",
    ),
    "vllm.v1.attention.backend": (
        "AttentionCGSupport has NEVER, UNIFORM_BATCH, ALWAYS",
        "AttentionType.DECODER",
        "AttentionBackend has customize_spec, supported_kv_cache_layouts",
        f"CommonAttentionMetadata has fields {BATCH_FIELDS}",
        "CommonAttentionMetadata.replace",
        *(f"AttentionMetadataBuilder.{line}" for line in BUILDER),
        "AttentionMetadataBuilder.reorder_batch_threshold",
        f"AttentionImpl.{FORWARD}",
        f"AttentionImpl.{LAYER}",
    ),
}
"""The classes, signatures and members that every wrapper relies on."""


def check_engine(route: str = "attention") -> Verdict:
    """Whether this vLLM has what `route` relies on; for `hk-backend status` and the plugin."""
    return check_linear() if route == "linear" else verdict_of(ATTENTION)


def check_parent(parent: Any) -> Verdict:
    """Whether one attention backend can be wrapped."""
    try:
        builder, impl = parent.get_builder_cls(), parent.get_impl_cls()
        if parent.forward_includes_kv_cache_update:
            return refused(f"{parent.__name__}: forward() writes the KV cache itself")
        if parent.is_mla():
            return refused(f"{parent.__name__}: latent attention")
        return keeps(builder, (*BUILDER, "_cudagraph_support")) and keeps(
            impl, (FORWARD, LAYER, CACHE_UPDATE)
        )
    except AttributeError as error:
        return refused(f"{parent.__name__}: {error}")
