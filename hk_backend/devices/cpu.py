"""The cpu device: native host kernels (`csrc/cpu`) on torch CPU tensors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from hk_backend.routing import SERVED, Verdict, refused

if TYPE_CHECKING:
    from hk_backend.ops.attention_envelope import AttentionRequest


class CpuDevice:
    """Host kernels of one instruction set: avx512, avx2 or portable."""

    def __init__(self, isa: str) -> None:
        self.name = f"cpu:{isa}"
        self._isa = isa

    def supports(self, request: AttentionRequest) -> Verdict:
        if request.device_type != "cpu":
            return refused(f"tensors on {request.device_type} with the cpu device")
        return SERVED

    def attention_prefill(
        self, query, key, value, query_start_loc, key_start_loc, seq_lens, block_table,
        paged_layout, sinks, alibi_slopes, k_scale, v_scale, scale, value_factor, causal,
        sliding_window, logits_soft_cap, out, lse,
    ) -> None:  # TEMPORARY shim on the reference until csrc/cpu lands
        from hk_backend import reference
        from hk_backend.ops.paged_kv import CacheView, PagedKV

        paged = None
        if paged_layout:
            L = paged_layout
            k = CacheView(key, tuple(L[:6]), L[6], L[7])
            v = CacheView(value, tuple(L[8:14]), L[14], L[15])
            paged = PagedKV(k, v, L[16], L[17], L[18], query.shape[2])
            key = value = None
        o, l = reference.attention_prefill(
            query, key, value, query_start_loc=query_start_loc, key_start_loc=key_start_loc,
            paged_kv=paged, block_table=block_table, seq_lens=seq_lens, scale=scale, causal=causal,
            sliding_window=sliding_window or None, logits_soft_cap=logits_soft_cap or None,
            sinks=sinks, alibi_slopes=alibi_slopes,
            k_scale=1.0 if k_scale is None else k_scale,
            v_scale=value_factor if v_scale is None else v_scale, dtype=torch.float32)
        n = int(query_start_loc[-1])
        out[:n] = o[:n].to(out.dtype)
        if lse is not None:
            lse[:, :n] = l[:, :n].float()


@cache
def cpu_device(isa: str) -> CpuDevice:
    """The device for `isa`, or for the best instruction set of this machine if it is empty."""
    return CpuDevice(isa or "avx2")
