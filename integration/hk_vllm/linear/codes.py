"""Activations that vLLM itself rounds to FP8, fused with what computes them.

vLLM does so in two ways. By hand, a layer announces the codes that it takes (`input_quant_key`),
and the model passes a `QuantizedActivation`. In compiled graphs, Inductor or vLLM's own passes fuse
its quantiser with the norm before it. HK's operator rounds where neither applies: outside of
graphs, and on CPUs by its kernel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from vllm.model_executor.layers.fusion.quant_activation import as_quantized_activation

from hk_backend.engine.linear.route import apply, is_on_host

Key = Any
"""vLLM's QuantKey, or None: not rounded to FP8."""


def multiply(
    layer: Any,
    x: Any,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    key: Key,
    quantiser: Any,
) -> torch.Tensor:
    """Multiplies `x`, rows or a `QuantizedActivation`, by the weight of `layer`.

    Args:
        key: key of the codes that the weight is multiplied with.
        quantiser: vLLM's quantiser for these codes.
    """
    codes = _codes_of(layer, x, key, quantiser)
    if codes is None:
        return apply(layer, x, bias, out_dtype)
    out = apply(layer, codes.data, bias, out_dtype or codes.dtype, codes.scales)
    return out.view(*codes.shape[:-1], out.shape[-1])


def announced(key: Key) -> Key:
    """The key that a layer announces; None if vLLM has no kernels that make such codes."""
    return key if hasattr(torch.ops._C, "silu_and_mul_quant") else None


class Codes(NamedTuple):
    """FP8 codes `[M, K]` and scales in the form that `hk_backend.ops.linear` takes.

    `dtype` and `shape` are those of the original rows.
    """

    data: torch.Tensor
    scales: torch.Tensor
    dtype: torch.dtype
    shape: torch.Size


def _codes_of(layer: Any, x: Any, key: Key, quantiser: Any) -> Codes | None:
    """The codes of `x` if vLLM has rounded it, or rounds it in this graph; else None."""
    given = as_quantized_activation(x, key)
    if given is not None:
        return _flat(given.data, given.scale, key, given.orig_dtype, given.orig_shape)
    if key is None or not torch.compiler.is_compiling() or is_on_host(layer):
        return None
    static = layer._buffers.get("hk_input_scale")
    codes, scales = quantiser(x.reshape(-1, x.shape[-1]), static)
    return _flat(codes, scales, key, x.dtype, x.shape)


def _flat(
    data: torch.Tensor, scales: torch.Tensor, key: Key, dtype: torch.dtype, shape: torch.Size
) -> Codes:
    is_one = key.scale.group_shape.is_per_tensor()
    scales = scales.reshape(1) if is_one else scales.reshape(-1, scales.shape[-1])
    return Codes(data.reshape(-1, data.shape[-1]), scales, dtype, shape)
