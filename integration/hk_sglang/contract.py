"""Checks of what the attention route relies on in SGLang, before anything is patched.

The forms of the KV pool are not checked here. They are verified on the running engine, by writing
through the pool's own writer and reading back (hk_backend.engine.cache_proof).
"""

from __future__ import annotations

from hk_backend.engine.contract import has_fields, has_members, has_parameters, verdict_of
from hk_backend.terms.verdict import SERVED, Verdict, refused
from hk_sglang.linear.contract import check_linear

BATCH_FIELDS = (
    "forward_mode",
    "batch_size",
    "input_ids",
    "req_pool_indices",
    "seq_lens",
    "seq_lens_cpu",
    "seq_lens_sum",
    "positions",
    "out_cache_loc",
    "encoder_lens",
    "extend_num_tokens",
    "extend_start_loc",
    "extend_prefix_lens",
    "extend_seq_lens",
    "extend_seq_lens_cpu",
    "extend_prefix_lens_cpu",
    "multi_item_delimiter_indices",
    "attn_cp_metadata",
    "tbo_parent_token_range",
)
MODES = ("EXTEND", "MIXED", "DECODE", "IDLE", "TARGET_VERIFY", "DRAFT_EXTEND_V2")
FORWARD = ("self", "q", "k", "v", "layer", "forward_batch", "save_kv_cache")
LAYER = (
    "self",
    "num_heads",
    "head_dim",
    "scaling",
    "num_kv_heads",
    "layer_id",
    "logit_cap",
    "v_head_dim",
    "sliding_window_size",
    "is_cross_attention",
    "pos_encoding_mode",
    "logit_capping_method",
    "quant_config",
    "attn_type",
    "use_irope",
)
SET_KV_BUFFER = ("self", "layer", "loc_info", "cache_k", "cache_v", "k_scale", "v_scale")


def check_engine(route: str = "attention") -> Verdict:
    """Whether this SGLang has what `route` relies on; for `hk-backend status` and the plugin."""
    return check_linear() if route == "linear" else verdict_of(_attention)


def _attention() -> list[Verdict]:
    """Whether this SGLang has the classes, signatures and members that every wrapper relies on."""
    from sglang.srt.arg_groups.overrides import declare_resolution
    from sglang.srt.layers.attention import attention_registry
    from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
    from sglang.srt.server_args import ServerArgs

    return [
        _has_first_step(),
        has_parameters(declare_resolution, ("server_args", "source")),
        has_members(ServerArgs, ("prefill_attention_backend", "attention_backend")),
        has_parameters(attention_registry.register_attention_backend, ("name",)),
        has_members(attention_registry, ("ATTENTION_BACKENDS",)),
        has_parameters(AttentionBackend.forward_extend, FORWARD),
        has_parameters(AttentionBackend.init_forward_metadata, ("self", "forward_batch")),
        has_parameters(
            AttentionBackend.init_forward_metadata_out_graph,
            ("self", "forward_batch", "in_capture"),
        ),
        has_members(AttentionBackend, ("forward_metadata",)),
        has_fields(ForwardBatch, BATCH_FIELDS),
        has_members(ForwardMode, MODES),
        has_members(AttentionType, ("DECODER",)),
        has_parameters(RadixAttention.__init__, LAYER),
        has_parameters(KVWriteLoc.for_layer, ("forward_batch", "layer", "swa_loc")),
        has_parameters(MHATokenToKVPool.set_kv_buffer, SET_KV_BUFFER),
        has_parameters(MHATokenToKVPool.get_kv_buffer, ("self", "layer_id")),
        has_parameters(SWAKVPool.set_kv_buffer, SET_KV_BUFFER),
        has_parameters(SWAKVPool.translate_loc_from_full_to_swa, ("self", "kv_indices")),
    ]


def _has_first_step() -> Verdict:
    from sglang.srt.arg_groups import resolution_hooks

    from hk_sglang.flags import FIRST_STEP

    if FIRST_STEP in resolution_hooks._OVERRIDABLE_HOOKS:
        return SERVED
    return refused(f"its arguments are not resolved by a step {FIRST_STEP}")
