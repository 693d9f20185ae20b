"""Encodes matrices in GGML's types, among them Q6_K, which the gguf package can only read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, quants

from bench_serving.llamacpp.formats import LONG_BLOCK

AT_ONCE = 1 << 22
"""Number of weights that are converted at a time, which limits memory."""
GROUP = 16
"""Number of weights of Q6_K that share a scale."""

Array = np.ndarray[Any, Any]


def encode(matrix: torch.Tensor, kind: GGMLQuantizationType) -> Array:
    """Encode `matrix` `[n, k]` of any float dtype as uint8 `[n, bytes of a row]`.

    Raises:
        gguf.quants.QuantError: k is not a multiple of the type's block.
    """
    if kind == GGMLQuantizationType.BF16:
        halves: Array = matrix.to(torch.bfloat16).contiguous().view(torch.uint8).numpy()
        return halves
    rows = max(1, AT_ONCE // matrix.shape[1])
    return np.concatenate([_encode(part.float().numpy(), kind) for part in matrix.split(rows)])


def _encode(rows: Array, kind: GGMLQuantizationType) -> Array:
    if kind != GGMLQuantizationType.Q6_K:
        return quants.quantize(rows, kind)  # type: ignore[no-any-return]
    if rows.shape[1] % LONG_BLOCK:
        raise quants.QuantError(f"Can't quantize tensor with shape {rows.shape} to Q6_K")
    return _q6_k(rows.reshape(-1, LONG_BLOCK)).reshape(len(rows), -1)


def _q6_k(blocks: Array) -> Array:
    """Encode float32 blocks `[count, 256]` as Q6_K, bytes `[count, 210]`.

    A group's scale maps its largest weight to -32. llama.cpp also tries eighteen other scales near
    this one, and keeps the one with the smallest squared error.
    """
    groups = blocks.reshape(len(blocks), -1, GROUP)
    scales = _largest(groups) / np.float32(-32)
    step = _largest(scales.swapaxes(1, 2)) / np.float32(-128)
    codes = np.rint(_over(scales, step)).clip(-128, 127)
    # readers multiply with the step as stored, in float16
    step = step.astype(np.float16)
    values = np.rint(_over(groups, codes * step.astype(np.float32))).clip(-32, 31) + 32
    # a block has two halves, each of four runs of 32 weights
    runs = values.astype(np.uint8).reshape(len(blocks), 2, 4, 32)
    low, high = runs & 15, runs >> 4
    parts = (
        low[:, :, :2] | low[:, :, 2:] << 4,
        high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6,
        codes.astype(np.int8).view(np.uint8),
        step.view(np.uint8),
    )
    return np.concatenate([part.reshape(len(blocks), -1) for part in parts], axis=1)


def _largest(groups: Array) -> Array:
    """The element of largest magnitude along the last axis, with its sign."""
    where = np.abs(groups).argmax(axis=-1, keepdims=True)
    return np.take_along_axis(groups, where, axis=-1)


def _over(values: Array, scale: Array) -> Array:
    """`values` over `scale`; 0 where `scale` is 0."""
    return np.divide(values, scale, out=np.zeros_like(values), where=scale != 0)
