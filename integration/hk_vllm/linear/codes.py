"""Activations that vLLM itself rounds to FP8, fused with what computes them.

vLLM does so in two ways. By hand, a layer announces the codes that it takes (`input_quant_key`),
and the model passes a `QuantizedActivation`. In compiled graphs, Inductor or vLLM's own passes fuse
its quantiser with the norm before it. HK's operator rounds where neither applies: outside of
graphs, and on CPUs by its kernel.
"""

from __future__ import annotations

from typing import Any

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

    Rows are rounded here if a graph is being compiled for a GPU.

    Args:
        key: key of the codes that the weight is multiplied with.
        quantiser: vLLM's quantiser for these codes.
    """
    given = as_quantized_activation(x, key)
    if given is not None:
        data, scales, dtype, shape = given.data, given.scale, given.orig_dtype, given.orig_shape
    elif key is None or not torch.compiler.is_compiling() or is_on_host(layer):
        return apply(layer, x, bias, out_dtype)
    else:
        data, scales = quantiser(x.reshape(-1, x.shape[-1]), layer._buffers.get("hk_input_scale"))
        dtype, shape = x.dtype, x.shape
    is_one = key.scale.group_shape.is_per_tensor()
    scales = scales.reshape(1) if is_one else scales.reshape(-1, scales.shape[-1])
    out = apply(layer, data.reshape(-1, data.shape[-1]), bias, out_dtype or dtype, scales)
    return out.view(*shape[:-1], out.shape[-1])


def announced(key: Key) -> Key:
    """The key that a layer announces; None if vLLM has no kernels that make such codes."""
    return key if hasattr(torch.ops._C, "silu_and_mul_quant") else None
