"""What each parent multiplies by, and reads, in an FP8 pool: HK and its parent share the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Scale = torch.Tensor | float | None
Scales = tuple[Scale, Scale]
"""Of keys and of values; None: neither divided when written nor multiplied when read."""


def no_scales(layer: Any) -> Scales:
    """torch_native: casts, whatever the checkpoint's scales are (torch_native_backend.py)."""
    return None, None


def layer_scales(layer: Any) -> Scales:
    """triton and aiter: the layer's own, if it has any (`_set_kv_buffer`, `forward_extend`)."""
    if layer.k_scale is None or layer.v_scale is None:
        return None, None
    return layer.k_scale, layer.v_scale


def host_scales(layer: Any) -> Scales:
    """intel_amx: the same as numbers; 0 and none are 1 (`forward_extend`)."""
    return layer.k_scale_float or None, layer.v_scale_float or None


@dataclass(frozen=True)
class Parent:
    """`scales(layer)`: what keys and values are divided by when they are written to an FP8 pool.
    `reads_fresh_back`: from a narrower pool this parent also reads the tokens of the batch itself,
    where others take them as they were projected. `caps_logits`: it knows a layer's `logit_cap`."""

    scales: Callable[[Any], Scales]
    reads_fresh_back: bool = False
    caps_logits: bool = True


PARENTS = {
    "torch_native": Parent(no_scales, reads_fresh_back=True, caps_logits=False),
    "intel_amx": Parent(host_scales),
    "triton": Parent(layer_scales),
    "aiter": Parent(layer_scales),
}
"""The backends that HK wraps, by SGLang's name: what it chooses by itself on CPUs and on ROCm."""
