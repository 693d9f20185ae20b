"""Checks of what the attention route relies on in SGLang, before anything is patched.

The forms of the KV pool are not checked here. They are verified on the running engine, by writing
through the pool's own writer and reading back (hk_backend.engine.cache_proof).
"""

from __future__ import annotations

from collections.abc import Iterator

from hk_backend.engine.contract import verdict_of
from hk_backend.terms.verdict import Verdict, refused
from hk_sglang.linear.contract import check_linear
from hk_sglang.resolution import FIRST_STEP

BATCH_FIELDS = (
    "forward_mode, batch_size, input_ids, req_pool_indices, seq_lens, seq_lens_cpu, seq_lens_sum, "
    "positions, out_cache_loc, encoder_lens, extend_num_tokens, extend_start_loc, "
    "extend_prefix_lens, extend_seq_lens, extend_seq_lens_cpu, extend_prefix_lens_cpu, "
    "multi_item_delimiter_indices, attn_cp_metadata, tbo_parent_token_range, spec_info"
)
FORWARD = "forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache)"
FORWARD_DECODE = "forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache)"
LAYER = (
    "__init__(self, num_heads, head_dim, scaling, num_kv_heads, layer_id, logit_cap, v_head_dim, "
    "sliding_window_size, is_cross_attention, pos_encoding_mode, logit_capping_method, "
    "quant_config, attn_type, use_irope)"
)
SET_KV_BUFFER = "set_kv_buffer(self, layer, loc_info, cache_k, cache_v, k_scale, v_scale)"

ATTENTION = {
    "sglang.srt.arg_groups.overrides": ("declare_resolution(server_args, source)",),
    "sglang.srt.runtime_context": ("max_speculative_num_draft_tokens()",),
    "sglang.srt.server_args": (
        "ServerArgs has prefill_attention_backend, attention_backend, "
        "speculative_draft_attention_backend",
    ),
    "sglang.srt.layers.attention.attention_registry": (
        "register_attention_backend(name)",
        "ATTENTION_BACKENDS",
    ),
    "sglang.srt.layers.attention.base_attn_backend": (
        f"AttentionBackend.{FORWARD}",
        f"AttentionBackend.{FORWARD_DECODE}",
        "AttentionBackend.init_cuda_graph_state(self, max_bs, max_num_tokens)",
        "AttentionBackend.init_forward_metadata(self, forward_batch)",
        "AttentionBackend.init_forward_metadata_out_graph(self, forward_batch, in_capture)",
        "AttentionBackend.forward_metadata",
    ),
    "sglang.srt.model_executor.forward_batch_info": (
        f"ForwardBatch has fields {BATCH_FIELDS}",
        "ForwardMode has EXTEND, MIXED, DECODE, IDLE, TARGET_VERIFY, DRAFT_EXTEND_V2",
        "ForwardMode has is_target_verify, is_draft_extend_v2",
    ),
    "sglang.srt.speculative.draft_utils": (
        "DraftBackendFactory.__init__(self, draft_model_runner)",
        "DraftBackendFactory.create_decode_backend(self)",
        "DraftBackendFactory.create_draft_extend_backend(self)",
    ),
    "sglang.srt.speculative.eagle_info": (
        "EagleDraftExtendInput has fields num_tokens_per_req, num_front_tokens",
    ),
    "sglang.srt.speculative.spec_info": (
        "SpeculativeAlgorithm has is_standalone, is_eagle, is_frozen_kv_mtp",
    ),
    "sglang.srt.layers.radix_attention": ("AttentionType.DECODER", f"RadixAttention.{LAYER}"),
    "sglang.srt.mem_cache.memory_pool": (
        "KVWriteLoc.for_layer(forward_batch, layer, swa_loc)",
        f"MHATokenToKVPool.{SET_KV_BUFFER}",
        "MHATokenToKVPool.get_key_buffer(self, layer_id)",
        "MHATokenToKVPool.get_value_buffer(self, layer_id)",
    ),
    "sglang.srt.mem_cache.swa_memory_pool": (
        f"SWAKVPool.{SET_KV_BUFFER}",
        "SWAKVPool.translate_loc_from_full_to_swa(self, kv_indices)",
    ),
}
"""The classes, signatures and members that every wrapper relies on."""


def check_engine(route: str = "attention") -> Verdict:
    """Whether this SGLang has what `route` relies on; for `hk-backend status` and the plugin."""
    return check_linear() if route == "linear" else verdict_of(ATTENTION, _first_step)


def _first_step() -> Iterator[Verdict]:
    from sglang.srt.arg_groups import resolution_hooks

    if FIRST_STEP not in resolution_hooks._OVERRIDABLE_HOOKS:
        yield refused(f"its arguments are not resolved by a step {FIRST_STEP}")
