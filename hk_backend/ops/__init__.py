"""The public operators, their envelopes and their `torch.library` registration."""

from hk_backend.ops.attention import attention_prefill, merge_attention
from hk_backend.ops.attention_envelope import AttentionRequest, supports
from hk_backend.ops.paged_kv import CacheView, PagedKV

__all__ = [
    "AttentionRequest",
    "CacheView",
    "PagedKV",
    "attention_prefill",
    "merge_attention",
    "supports",
]
