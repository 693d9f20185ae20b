"""The operators in plain torch, written for clarity: the oracle of every test."""

from hk_backend.reference.attention import attention_prefill, gather_paged, merge_attention
from hk_backend.reference.linear import (
    dequantize,
    dequantize_rows,
    linear,
    quantize_fp8,
    quantize_mx,
)

__all__ = [
    "attention_prefill",
    "dequantize",
    "dequantize_rows",
    "gather_paged",
    "linear",
    "merge_attention",
    "quantize_fp8",
    "quantize_mx",
]
