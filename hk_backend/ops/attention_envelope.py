"""The envelope of `attention_prefill`: requests that it serves, decided from host facts alone."""

from __future__ import annotations

import math

import torch

from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
MAX_HEAD_SIZE = 256


def is_head_size(channels: int) -> bool:
    """Whether keys, or values, may have this many channels."""
    return channels % 8 == 0 and 8 <= channels <= MAX_HEAD_SIZE


def limits(request: AttentionRequest) -> Verdict:
    """Whether the operator itself, on any device, computes `request`."""
    if request.dtype not in DTYPES:
        return refused(f"dtype {request.dtype} is not one of bfloat16, float16, float32")
    kv_dtype = request.kv_dtype or request.dtype
    if kv_dtype != request.dtype and kv_dtype not in FP8_DTYPES:
        return refused(f"keys and values in {kv_dtype} with queries in {request.dtype}")
    if not is_head_size(request.head_size):
        return refused(f"head_size {request.head_size} is not a multiple of 8 up to 256")
    if not is_head_size(request.value_size):
        return refused(f"values of {request.value_size} channels, not a multiple of 8 up to 256")
    heads, kv_heads = request.num_heads, request.num_kv_heads
    if kv_heads < 1 or heads < 1 or heads % kv_heads:
        return refused(f"{heads} query heads are not a multiple of {kv_heads} KV heads")
    if request.sliding_window is not None and request.sliding_window < 1:
        return refused(f"sliding_window {request.sliding_window} is not positive")
    if request.logits_soft_cap is not None and not 0 <= request.logits_soft_cap < math.inf:
        return refused(f"logits_soft_cap {request.logits_soft_cap} is negative or not finite")
    if request.paged and request.block_size is not None and request.block_size < 1:
        return refused(f"block_size {request.block_size} is not positive")
    return SERVED
