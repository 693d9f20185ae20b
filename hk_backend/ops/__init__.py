"""The public operators, their envelopes and their `torch.library` registration."""

from hk_backend.ops.attention_decode import attention_decode
from hk_backend.ops.attention_prefill import attention_prefill
from hk_backend.ops.linear import linear
from hk_backend.ops.look_up import look_up
from hk_backend.ops.merge_attention import merge_attention
from hk_backend.ops.pack_weight import WeightError, pack_weight
from hk_backend.ops.quantize_fp8 import quantize_fp8
from hk_backend.ops.quantize_mx import quantize_mx
from hk_backend.ops.registry import supports
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.paged_kv import CacheView, PagedKV
from hk_backend.terms.requests import AttentionRequest, DecodeRequest, LinearRequest

__all__ = [
    "AttentionRequest",
    "CacheView",
    "DecodeRequest",
    "LinearRequest",
    "PackedWeight",
    "PagedKV",
    "WeightError",
    "attention_decode",
    "attention_prefill",
    "linear",
    "look_up",
    "merge_attention",
    "pack_weight",
    "quantize_fp8",
    "quantize_mx",
    "supports",
]
