"""`linear` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.devices.cpu.prepared_linear import PreparedLinear
from hk_backend.reference.linear import round_activations
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FORMATS, FP8_BLOCK, ROTATED


def run(on: Extension, of: LinearArguments) -> None:
    x, weight, bias, out = of.x, of.weight, of.bias, of.out
    activations, input_scale = weight.activations, weight.input_scale
    if of.x_scales is not None:
        x, activations, input_scale = values_of(x, of.x_scales), "none", None
    elif in_another_format(weight):
        rounding = weight.format, activations, None, weight.rotation
        x, activations, weight = round_activations(x, *rounding).float(), "none", _turned(weight)
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
    if of.x_scales is not None or in_another_format(of.weight):
        return None
    return PreparedLinear.of(on, of, kind_of(on, of.weight, of.weight.activations))


def kind_of(on: Extension, weight: PackedWeight, activations: str) -> tuple[Any, ...]:
    """Arguments of the extension that say how to multiply by a weight, without the thread count."""
    activations = ROTATED.get(activations, activations)
    return on.isa, on.formats[weight.format], on.activations[activations], weight.rotation


def in_another_format(weight: PackedWeight) -> bool:
    """Whether x is rounded to another format than the weight's, which no kernel does."""
    return weight.x_format not in (None, FORMATS[weight.format])


def _turned(weight: PackedWeight) -> PackedWeight:
    """The weight for an x that is rotated already."""
    return replace(weight, rotation=0)


def values_of(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Float32 values of FP8 codes `[M, K]` with scales `[M or 1, 1]` or `[M, ceil(K / 128)]`."""
    if scales.shape[1] > 1:
        scales = scales.repeat_interleave(FP8_BLOCK, 1)[:, : codes.shape[1]]
    return codes.float() * scales
