"""Linear layers and quantisers on the cpu device: pass addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.terms.linear_arguments import (
    LinearArguments,
    LookUpArguments,
    PackWeightArguments,
    QuantizeFp8Arguments,
    QuantizeMxArguments,
)
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FP8_BLOCK, ROTATED, format_of_fp8


def packed_bytes(on: Extension, format: str, n: int, k: int) -> int:
    """Bytes of a packed weight `[n, k]`."""
    found: int = on.kernels.packed_bytes(on.isa, on.formats[format], n, k)
    return found


def pack_weight(on: Extension, of: PackWeightArguments) -> None:
    on.kernels.pack_weight(
        on.isa,
        torch.get_num_threads(),
        on.formats[of.format],
        (of.n, of.k),
        of.weight.data_ptr(),
        of.weight.stride(),
        address(of.scales),
        (0, 0) if of.scales is None else of.scales.stride(),
        of.data.data_ptr(),
        address(of.factors),
    )


def kind_of(on: Extension, weight: PackedWeight, activations: str) -> tuple[Any, ...]:
    """Arguments of the extension that say how to multiply by a weight, without the thread count."""
    activations = ROTATED.get(activations, activations)
    return on.isa, on.formats[weight.format], on.activations[activations], weight.rotation


def linear(on: Extension, of: LinearArguments) -> None:
    x, weight, bias, out = of.x, of.weight, of.bias, of.out
    activations, input_scale = weight.activations, weight.input_scale
    if of.x_scales is not None:
        x, activations, input_scale = values_of(x, of.x_scales), "none", None
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


def look_up(on: Extension, of: LookUpArguments) -> None:
    weight = of.weight
    on.kernels.look_up(
        on.isa,
        torch.get_num_threads(),
        on.formats[weight.format],
        weight.rotation,
        (len(of.ids), weight.n, weight.k),
        of.ids.data_ptr(),
        weight.data.data_ptr(),
        address(weight.factors),
        address(weight.block_scales),
        of.out.data_ptr(),
        on.dtypes[of.out.dtype],
    )


def values_of(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Float32 values of FP8 codes `[M, K]` with scales `[M or 1, 1]` or `[M, ceil(K / 128)]`."""
    if scales.shape[1] > 1:
        scales = scales.repeat_interleave(FP8_BLOCK, 1)[:, : codes.shape[1]]
    return codes.float() * scales


def quantize_fp8(on: Extension, of: QuantizeFp8Arguments) -> None:
    on.kernels.quantize_fp8(
        on.isa,
        torch.get_num_threads(),
        on.formats[format_of_fp8(of.codes.dtype).name],
        tuple(of.x.shape),
        of.x.data_ptr(),
        on.dtypes[of.x.dtype],
        of.x.stride(0),
        of.group,
        of.divide,
        of.dynamic,
        of.codes.data_ptr(),
        of.scales.data_ptr(),
    )


def quantize_mx(on: Extension, of: QuantizeMxArguments) -> None:
    on.kernels.quantize_mx(
        on.isa,
        torch.get_num_threads(),
        on.formats[of.format],
        tuple(of.x.shape),
        of.x.data_ptr(),
        on.dtypes[of.x.dtype],
        of.x.stride(0),
        of.rotation,
        of.round_scale_even,
        of.codes.data_ptr(),
        of.scales.data_ptr(),
    )
