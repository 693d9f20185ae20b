"""Translates vLLM's configurations of kernels to HK's names, and asks whether HK serves them."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    GroupShape,
    kMxfp6E2M3Dynamic,
    kMxfp6E2M3Static,
    kMxfp6E3M2Dynamic,
    kMxfp6E3M2Static,
)

from hk_backend.engine.linear.packed_layer import FORMAT_OF
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import FP8_BLOCK, MX_BLOCK
from hk_vllm.linear.layer import verdict_on

BLOCK = GroupShape(FP8_BLOCK, FP8_BLOCK)
MXFP6 = {
    kMxfp6E2M3Static: ("mxfp6_e2m3", kMxfp6E2M3Dynamic),
    kMxfp6E3M2Static: ("mxfp6_e3m2", kMxfp6E3M2Dynamic),
}
"""HK's format, and the key of activations in the same format, by the key of the weight."""


def activations_of(key: Any) -> str:
    """HK's name for the activations of vLLM's key; empty if HK does not support them."""
    group = key.scale.group_shape
    if group.is_per_tensor():
        return "tensor"
    if key.scale.static:
        return ""
    if group.is_per_token():
        return "token"
    return "token_block" if group == GroupShape(1, FP8_BLOCK) else ""


def scale_kind_of(key: Any) -> str:
    """HK's name for what shares a weight scale; empty if HK has none."""
    group = key.scale.group_shape
    if group.is_per_tensor():
        return "tensor"
    if group.is_per_channel() or group.is_per_token():  # a row of the weight either way
        return "channel"
    return "block" if group == BLOCK else ""


def fp8_verdict(config: Any, activations: str, scale_kind: str) -> Verdict:
    format = FORMAT_OF.get(config.weight_quant_key.dtype)
    if format is None:
        return refused(f"a weight in {config.weight_quant_key.dtype}")
    n, k = config.weight_shape
    return verdict_on(
        format,
        n,
        k,
        config.input_dtype,
        activations=activations,
        scale_kind=scale_kind,
        out_dtype=config.out_dtype,
    )


def mx_verdict(format: str, n: int = 1, k: int = MX_BLOCK) -> Verdict:
    """Whether HK serves a layer in an MX format.

    vLLM's configurations for MX lack the dtype of activations, and some the shape.
    """
    return verdict_on(format, n, k, torch.get_default_dtype(), activations="mx")
