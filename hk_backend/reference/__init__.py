"""The operators in plain torch, written for clarity: the oracle of every test."""

from hk_backend.reference.attention import attention_prefill, gather_paged, merge_attention

__all__ = ["attention_prefill", "gather_paged", "merge_attention"]
