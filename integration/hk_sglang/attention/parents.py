"""Each parent's handling of an FP8 pool: the scales that it applies, and when it reads the pool.

HK has to do the same, as both share the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Scale = torch.Tensor | float | None
Scales = tuple[Scale, Scale]
"""Scales of keys and of values; None: not divided when written, nor multiplied when read."""


def no_scales(layer: Any) -> Scales:
    """No scales: torch_native casts, whatever the checkpoint has (torch_native_backend.py)."""
    return None, None


def layer_scales(layer: Any) -> Scales:
    """The layer's scales, if it has any: triton and aiter (`_set_kv_buffer`, `forward_extend`)."""
    if layer.k_scale is None or layer.v_scale is None:
        return None, None
    return layer.k_scale, layer.v_scale


def host_scales(layer: Any) -> Scales:
    """The layer's scales as numbers, for intel_amx; it takes 0 and None as 1 (`forward_extend`)."""
    return layer.k_scale_float or None, layer.v_scale_float or None


@dataclass(frozen=True)
class Parent:
    """The parent's handling of an FP8 pool, and of a layer's `logit_cap`.

    Args:
        scales: for a layer, divisors of keys and values that are written to an FP8 pool.
        reads_fresh_back: whether it reads even the tokens of the batch itself back from a narrower
            pool. Other parents take them as projected.
        caps_logits: whether it applies a layer's `logit_cap`.
    """

    scales: Callable[[Any], Scales]
    reads_fresh_back: bool = False
    caps_logits: bool = True


PARENTS = {
    "torch_native": Parent(no_scales, reads_fresh_back=True, caps_logits=False),
    "intel_amx": Parent(host_scales),
    "triton": Parent(layer_scales),
    "aiter": Parent(layer_scales),
}
"""The backends that HK wraps, by SGLang's name; SGLang chooses these by itself on CPUs and ROCm."""
