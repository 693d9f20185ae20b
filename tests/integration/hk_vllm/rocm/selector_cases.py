"""Layers as vLLM's attention selector sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROCM_BACKENDS = ("ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN")


@dataclass(frozen=True)
class Case:
    """`layer`: fields of AttentionSelectorConfig (dtype by name); `backend`: the user's flag.

    `missing`: a vLLM module whose import fails.
    """

    layer: dict[str, Any] = field(default_factory=dict)
    backend: str = ""
    missing: str = ""


LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "head 64 in fp16": {"head_size": 64, "dtype": "float16"},
    "head 256": {"head_size": 256},
    "head 72": {"head_size": 72},
    "head 16": {"head_size": 16},
    "fp32": {"dtype": "float32"},
    "fp8 kv": {"kv_cache_dtype": "fp8"},
    "fp8_e5m2 kv": {"kv_cache_dtype": "fp8_e5m2"},
    "int8 kv per token and head": {"kv_cache_dtype": "int8_per_token_head"},
    "block 16": {"block_size": 16},
    "block 128": {"block_size": 128},
    "block 24": {"block_size": 24},
    "sliding window": {"has_sliding_window": True},
    "sinks": {"has_sink": True},
    "sinks, head 72": {"has_sink": True, "head_size": 72},
    "kv connector": {"use_kv_connector": True},
    "not causal": {"use_non_causal": True},
    "batch invariant": {"use_batch_invariant": True},
    "encoder": {"attn_type": "encoder_only"},
    "decode context parallel": {"use_dcp": True},
    "mla": {"use_mla": True, "head_size": 576},
}
"""Every reason for which the automatic order passes a backend over, and layers of no backend."""

CASES: dict[str, Case] = {
    # first: a class that has been made once is kept
    "sinks, without rocm_aiter_fa / no flag": Case(
        {"has_sink": True}, missing="vllm.v1.attention.backends.rocm_aiter_fa"
    ),
} | {
    f"{layer} / {backend or 'no flag'}": Case(fields, backend)
    for layer, fields in LAYERS.items()
    for backend in ("", *ROCM_BACKENDS, "CUSTOM")
}
