"""The arguments of linear layers, packed weights and quantised tensors, as devices take them.

`ops` makes and checks them. They are defined here because devices are below `ops` and take the
whole object. Every x is `[M, K]`, bfloat16, float16 or float32, contiguous along K with any row
stride.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hk_backend.terms.packed_weight import TENSORS, PackedWeight


@dataclass(frozen=True, slots=True, eq=False)
class LinearArguments:
    """`out = x @ W.T + bias`.

    Args:
        weight: W, packed by this device.
        bias: `[N]`, bfloat16, float16 or float32, contiguous, or None.
        out: `[M, N]`, contiguous, bfloat16, float16 or float32; written.
        x_scales: scales of x, which then holds FP8 codes `[M, K]`: float32 `[M, 1]` or `[1, 1]`
            (per row), or `[M, ceil(K / 128)]` (per 128 of a row), any strides. Of MX codes
            `[M, K * bits / 8]`: e8m0 `[M, K / 32]`. None: the device rounds x as the weight says.
    """

    operator: ClassVar[str] = "linear"

    x: torch.Tensor
    weight: PackedWeight
    bias: torch.Tensor | None
    out: torch.Tensor
    x_scales: torch.Tensor | None = None

    def tensors(self) -> dict[str, torch.Tensor | None]:
        """All tensors, in the order in which a repeated call hands them over (`Device.prepare`)."""
        *weight, _ = self.weight.flat()
        named = zip(TENSORS, weight, strict=True)
        outer = {"bias": self.bias, "x_scales": self.x_scales, "out": self.out}
        return {"x": self.x, **dict(named), **outer}


@dataclass(frozen=True, slots=True, eq=False)
class LookUpArguments:
    """A look-up of rows of a packed weight.

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
    """The packing of a weight into the device's own layout.

    Args:
        weight: tensor in the form that `ops.pack_weight` takes, any strides.
        scales: for mx formats the e8m0 codes, uint8 `[N, K / 32]`, any strides; else None.
        factors: for formats with a NaN code float32 `[N]`, contiguous; else None. A NaN code is
            packed as zero, and the factor of its row becomes NaN.
        activations: how `linear` will round x (`ops.pack_weight`), as a layout may depend on it.
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
    """A rounding of `x / scale` to FP8, saturating, with one scale per group of elements.

    Args:
        group: (rows, columns) that share a scale; the last group of either axis may be short.
        divide: whether elements are divided by their scale. Else they are multiplied by
            `1 / scale`, which is rounded to float32 first.
        dynamic: whether `scales` are computed and written. Else they are given.
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
    """A rounding to an mx format, as `ops.quantize_mx` defines it.

    Args:
        rotation: neighbours of a row that are rotated together first: 32, 64, 128, or 0 for none.
        round_scale_even: whether scales follow the rule "even"; else "floor".
        codes: uint8 `[M, K * bits / 8]`, contiguous; written.
        scales: uint8 `[M, K / 32]`, contiguous; written.
        packed: whether codes and scales are uint8 `[bytes]` in the order of a GPU's gemm kernels
            (devices/hip/mx_layout.py) instead; only GPUs have that.
    """

    operator: ClassVar[str] = "quantize_mx"

    x: torch.Tensor
    format: str
    rotation: int
    round_scale_even: bool
    codes: torch.Tensor
    scales: torch.Tensor
    packed: bool = False
