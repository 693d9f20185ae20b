"""`linear` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.devices.cpu.prepared_linear import PreparedLinear
from hk_backend.reference import dequantize
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, ROTATED, Format


def run(on: Extension, of: LinearArguments) -> None:
    x, weight, bias, out = of.x, of.weight, of.bias, of.out
    activations, input_scale = weight.activations, weight.input_scale
    if of.x_scales is not None:
        x, activations, input_scale = values_of(x, of.x_scales, weight.x_format), "none", None
        weight = replace(weight, rotation=0)  # codes are of rotated values already
    isa, *kind = kind_of(on, weight, activations)
    on.kernels.linear(
        isa,
        torch.get_num_threads(),
        *kind,
        (x.shape[0], weight.n, weight.k),
        x.data_ptr(),
        on.dtypes[x.dtype],
        x.stride(0),
        weight.data.data_ptr(),
        address(weight.factors),
        address(weight.block_scales),
        address(input_scale),
        address(bias),
        on.dtypes[out.dtype if bias is None else bias.dtype],
        out.data_ptr(),
        on.dtypes[out.dtype],
        out.stride(0),
    )


def prepare(
    on: Extension, of: LinearArguments, tensors: Sequence[torch.Tensor | None]
) -> PreparedLinear | None:
    """Prepares calls like this one, if x is not given as codes (`Device.prepare`)."""
    if of.x_scales is not None:
        return None
    return PreparedLinear.of(on, of, kind_of(on, of.weight, of.weight.activations))


def kind_of(on: Extension, weight: PackedWeight, activations: str) -> tuple[Any, ...]:
    """Arguments of the extension that say how to multiply by a weight, without the thread count."""
    format = FORMATS[weight.format]
    target = format.of_activations(activations)
    rounding = (
        "mx" if target is not None and target.is_mx else ROTATED.get(activations, activations)
    )
    x_format = on.formats[(target or format).name]
    return on.isa, on.formats[format.name], on.activations[rounding], x_format, weight.rotation


def values_of(
    codes: torch.Tensor, scales: torch.Tensor, format: Format | None = None
) -> torch.Tensor:
    """Float32 values of FP8 codes `[M, K]` with scales `[M or 1, 1]` or `[M, ceil(K / 128)]`.

    Of codes in an MX `format` `[M, K * bits / 8]`: with e8m0 scales `[M, K / 32]`.
    """
    if format is not None and format.is_mx:
        return dequantize(codes, format.name, scales).float()
    if scales.shape[1] > 1:
        scales = scales.repeat_interleave(FP8_BLOCK, 1)[:, : codes.shape[1]]
    return codes.float() * scales
