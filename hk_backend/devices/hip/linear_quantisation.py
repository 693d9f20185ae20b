"""The rounding of x to FP8 or an MX format before a layer's multiplication."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hk_backend.devices.hip import mx_layout
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    QuantizeFp8Arguments,
    QuantizeMxArguments,
)
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, MIN_FP8_SCALE, Format

Quantisation = QuantizeFp8Arguments | QuantizeMxArguments
"""A launch that rounds x, into new tensors."""


def tensor_scale(x: torch.Tensor) -> torch.Tensor:
    """Dynamic scale of the whole x (`ops.quantize_fp8`), float32 `[1]`, without waiting for it."""
    largest = FORMATS["fp8_e4m3fn"].quantised_max
    if x.numel() == 0:
        return torch.ones(1, dtype=torch.float32, device=x.device)
    scale = x.abs().amax().float() / largest
    return scale.clamp(min=MIN_FP8_SCALE / largest).reshape(1)


def quantisation(
    of: LinearArguments, scale_of: Callable[[torch.Tensor], torch.Tensor] = tensor_scale
) -> Quantisation | None:
    """The rounding of x before the multiplication, into new tensors; None if x is taken as is.

    Args:
        scale_of: computes a dynamic scale of the whole x, float32 `[1]`.
    """
    weight, x = of.weight, of.x
    if weight.x_format is None or of.x_scales is not None:
        return None
    if weight.x_format.is_mx:
        return _to_mx(x, weight.x_format, weight.rotation)
    codes = torch.empty(x.shape, dtype=FORMATS[weight.format].dtype, device=x.device)
    if weight.activations == "tensor":
        given = scale_of(x) if weight.input_scale is None else weight.input_scale
        group = max(x.shape[0], 1), weight.k
        return QuantizeFp8Arguments(x, group, False, False, codes, given.view(1, 1))
    by_block = weight.activations == "token_block"
    columns = FP8_BLOCK if by_block else weight.k
    # scales of one block of K lie together, as the kernels copy them for all rows
    shape = -(-weight.k // columns), x.shape[0]
    scales = torch.empty(shape, dtype=torch.float32, device=x.device).T
    return QuantizeFp8Arguments(x, (1, columns), by_block, True, codes, scales)


def _to_mx(x: torch.Tensor, format: Format, rotation: int) -> QuantizeMxArguments:
    """The rounding to codes and scales in the kernels' order."""
    rows, k = x.shape
    sizes = mx_layout.code_bytes(format.name, rows, k), mx_layout.scale_bytes(rows, k)
    codes, scales = (x.new_empty(size, dtype=torch.uint8) for size in sizes)
    return QuantizeMxArguments(x, format.name, rotation, True, codes, scales, packed=True)


def scale_of_all(of: LinearArguments) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The torch function that computes the scale of all of x before the launches, if any."""
    weight = of.weight
    given = of.x_scales is not None or weight.input_scale is not None
    return None if given or weight.activations != "tensor" else tensor_scale
