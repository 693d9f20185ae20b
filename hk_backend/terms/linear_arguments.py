"""The arguments from which a device computes linear layers, packed weights and quantised tensors.

Built and checked in `ops`, but defined here because devices, which are below `ops`, take the whole
object. Every x is `[M, K]`, bfloat16, float16 or float32, contiguous along K with any row stride.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hk_backend.terms.packed_weight import PackedWeight


@dataclass(frozen=True, slots=True, eq=False)
class LinearArguments:
    """`out = x @ W.T + bias`.

    Args:
        weight: W, packed by this device.
        bias: `[N]`, bfloat16, float16 or float32, contiguous, or None.
        out: `[M, N]`, contiguous, bfloat16, float16 or float32; written.
        x_scales: x holds FP8 codes already, `[M, K]`, and this is what they are multiplied by:
            float32 `[M, 1]` or `[1, 1]` (of rows), or `[M, ceil(K / 128)]` (of 128 of a row), any
            strides; None: x is to be rounded as the weight says.
    """

    operator: ClassVar[str] = "linear"

    x: torch.Tensor
    weight: PackedWeight
    bias: torch.Tensor | None
    out: torch.Tensor
    x_scales: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LookUpArguments:
    """Rows of a packed weight.

    Args:
        ids: int64 `[M]`, contiguous.
        weight: `[N, K]`, packed by this device.
        out: `[M, K]`, contiguous, bfloat16, float16 or float32; written.
    """

    operator: ClassVar[str] = "look_up"

    ids: torch.Tensor
    weight: PackedWeight
    out: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PackWeightArguments:
    """A weight in the device's own layout.

    Args:
        weight: as `ops.pack_weight` takes it, any strides.
        scales: mx formats: the e8m0 codes, uint8 `[N, K / 32]`, any strides; else None.
        factors: formats that have a NaN code: float32 `[N]`, contiguous; NaN is written where
            a column holds a NaN code, which is packed as zero. Else None.
        activations: how `linear` will round x (`ops.pack_weight`): a layout may depend on it.
        data: uint8 `[bytes]`, as many as the device asked for; written.
    """

    operator: ClassVar[str] = "pack_weight"

    weight: torch.Tensor
    format: str
    n: int
    k: int
    scales: torch.Tensor | None
    factors: torch.Tensor | None
    activations: str
    data: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class QuantizeFp8Arguments:
    """Round `x / scale` to FP8, saturating, one scale per group of elements.

    Args:
        group: (rows, columns) that share a scale; the last group of either axis may be short.
        divide: elements are divided by their scale; else multiplied by `1 / scale`, rounded
            to float32 first.
        dynamic: `scales` are computed and written; else they are given.
        codes: `[M, K]`, contiguous, float8_e4m3fn or float8_e4m3fnuz; written.
        scales: float32 `[ceil(M / rows), ceil(K / columns)]`; contiguous on the cpu device.
    """

    operator: ClassVar[str] = "quantize_fp8"

    x: torch.Tensor
    group: tuple[int, int]
    divide: bool
    dynamic: bool
    codes: torch.Tensor
    scales: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class QuantizeMxArguments:
    """Round to an mx format (`ops.quantize_mx` says how).

    Args:
        rotation: neighbours of a row that are rotated first: 32, 64, 128, or 0.
        round_scale_even: the rule "even" for scales; else "floor".
        codes: uint8 `[M, K * bits / 8]`, contiguous; written.
        scales: uint8 `[M, K / 32]`, contiguous; written.
    """

    operator: ClassVar[str] = "quantize_mx"

    x: torch.Tensor
    format: str
    rotation: int
    round_scale_even: bool
    codes: torch.Tensor
    scales: torch.Tensor
