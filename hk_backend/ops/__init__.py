"""The public operators, their envelopes and their `torch.library` registration."""

from hk_backend.ops.attention import attention_prefill, merge_attention
from hk_backend.ops.attention_envelope import supports_attention
from hk_backend.ops.linear import linear
from hk_backend.ops.linear_envelope import supports_linear
from hk_backend.ops.look_up import look_up
from hk_backend.ops.packed_weight import WeightError, pack_weight
from hk_backend.ops.quantize import quantize_fp8, quantize_mx
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.paged_kv import CacheView, PagedKV
from hk_backend.terms.requests import AttentionRequest, LinearRequest

__all__ = [
    "AttentionRequest",
    "CacheView",
    "LinearRequest",
    "PackedWeight",
    "PagedKV",
    "WeightError",
    "attention_prefill",
    "linear",
    "look_up",
    "merge_attention",
    "pack_weight",
    "quantize_fp8",
    "quantize_mx",
    "supports_attention",
    "supports_linear",
]
