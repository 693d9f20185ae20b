"""`linear`: the public operator of linear layers, over a weight packed by `pack_weight`."""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.devices import Device, device_for
from hk_backend.ops.linear_codes import check_codes, codes_of_a_row, scales_of_a_row
from hk_backend.ops.linear_envelope import limits
from hk_backend.ops.registry import declare, define, watched
from hk_backend.ops.rotation import rotation_fault
from hk_backend.terms.checks import bad, check_no_grad
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.packed_weight import FLAT_VALUES, FlatWeight, PackedWeight
from hk_backend.terms.packed_weight import SCHEMA as WEIGHT_SCHEMA
from hk_backend.terms.weight_format import ACTIVATIONS, FLOAT_DTYPES, FORMATS, FP8_BLOCK

MOST_CALLS = 4096
"""Most prepared calls of a device: one for each number of rows and kind of layer."""
PER_TENSOR = ACTIVATIONS.index("tensor")
"""Number of the activations "tensor" among a packed weight's ints."""


def linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    x_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """`x @ W.T + bias`, summed in float32 and rounded once.

    Args:
        x: `[..., K]`, bfloat16, float16 or float32, any strides, any number of rows; the dtype
            of the weight if that is bf16, fp16 or fp32. It is rotated and rounded first as
            `weight.activations` says, exactly as `quantize_fp8` and `quantize_mx` do. With
            `x_scales` it holds what these two return, rotated if the weight is: FP8 codes, or
            `[..., K * bits / 8]` codes of the MX format that activations are rounded to.
        weight: W `[N, K]`, packed by the device that x is on.
        bias: `[N]`, bfloat16, float16 or float32.
        out_dtype: bfloat16, float16 or float32. Required if x holds codes; default: that of x.
        x_scales: float32 scales of the FP8 codes in x; they replace a static scale of the weight.
            If `weight.activations` is "token" or "tensor": one number or `[..., 1]`;
            "token_block": `[..., ceil(K / 128)]`. Of MX codes: e8m0, uint8 `[..., K / 32]`.

    Returns:
        `[..., N]` in `out_dtype`. A row of x that holds an infinity or NaN and is quantised
        dynamically is NaN; with dynamic "tensor" activations every row is. So is, whatever x
        holds, an output feature whose quantised weights hold a NaN code.

    Raises:
        ValueError: an argument that does not fit; the message names it, its value and what would
            be valid. Nothing has been computed.
    """
    if watched(x):
        result: torch.Tensor = torch.ops.hk_backend.linear(
            x, *weight.flat(), bias, out_dtype or x.dtype, x_scales
        )
        return result
    device = device_for(x.device.type)
    return linear_of_flat(x, weight.flat(), bias, out_dtype or x.dtype, x_scales, device)


def linear_of_flat(
    x: torch.Tensor,
    weight: FlatWeight,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
    x_scales: torch.Tensor | None,
    device: Device,
) -> torch.Tensor:
    """`linear` without torch's dispatcher, for a weight in the form of `PackedWeight.flat`.

    `device` is the one that holds x. Checking a call and choosing its kernels takes longer than a
    small layer, so the first call of a layout is prepared for all others.
    """
    check_no_grad(x=x, bias=bias)
    scales = x_scales
    if scales is not None and scales.dim() != 2 and weight[-1][3] == PER_TENSOR:
        scales = scales.reshape(-1, 1)
    *parts, ints = weight
    of_x = (x.shape, x.stride(), x.dtype, x.get_device())
    key = (*of_x, out_dtype, bias is None, scales is None, *ints)
    calls = device.prepared_calls
    found = calls.get(key)
    if found is not None:
        prepared, template = found
        out = torch.empty_like(template)
        if prepared.launch(None, (x, *parts, bias, scales, out)):
            return out
    of = _checked(x, PackedWeight.from_flat(weight), bias, out_dtype, x_scales, device)
    tensors = tuple(of.tensors().values())
    in_place = of.x is x and of.bias is bias and (scales is None or scales.is_contiguous())
    prepared = device.prepare(of, tensors) if in_place else None
    if prepared is None or not prepared.launch(None, tensors):
        device.run(of)
    else:
        if len(calls) >= MOST_CALLS:
            calls.clear()
        calls[key] = prepared, _template(of.out)
    return of.out if x.dim() == 2 else of.out.view(*x.shape[:-1], of.weight.n)


def _template(out: torch.Tensor) -> torch.Tensor:
    """A tensor like a contiguous one, over memory of one element.

    Allocating like a tensor takes half the time of allocating by shape, dtype and device.
    """
    with torch.inference_mode(False):  # else autograd could never use tensors made like it
        return torch.empty(1, dtype=out.dtype, device=out.device).expand(out.shape)


def _checked(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
    x_scales: torch.Tensor | None,
    device: Device,
) -> LinearArguments:
    """Checks a call, and returns the device's arguments."""
    _check(x, weight, bias, out_dtype, x_scales)
    check_packed(weight, device)
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    out = torch.empty((rows.shape[0], weight.n), dtype=out_dtype, device=x.device)
    bias = None if bias is None else bias.contiguous()
    if x_scales is not None:
        x_scales = x_scales.reshape(-1, scales_of_a_row(weight)).contiguous()
    return LinearArguments(rows, weight, bias, out, x_scales)


def _check(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
    x_scales: torch.Tensor | None,
) -> None:
    format = FORMATS[weight.format]
    columns = weight.k if x_scales is None else codes_of_a_row(weight)
    if x.dim() < 1 or x.shape[-1] != columns:
        bad("x", tuple(x.shape), f"the shape [..., {columns}]")
    if x_scales is not None:
        check_codes(x, x_scales, weight)
    elif x.dtype not in FLOAT_DTYPES:
        bad("x", x.dtype, "bfloat16, float16 or float32, or codes with x_scales")
    elif not format.is_quantised and x.dtype != format.dtype:
        bad("x", x.dtype, f"the dtype of weight, {format.dtype}")
    if x.device != weight.data.device:
        bad("x", x.device, f"the device of weight, {weight.data.device}")
    if out_dtype not in FLOAT_DTYPES:
        bad("out_dtype", out_dtype, "bfloat16, float16 or float32")
    check_no_grad(x=x, bias=bias)
    if bias is not None:
        if bias.dtype not in FLOAT_DTYPES:
            bad("bias", bias.dtype, "bfloat16, float16 or float32")
        if tuple(bias.shape) != (weight.n,):
            bad("bias", tuple(bias.shape), f"the shape [{weight.n}]")
        if bias.device != x.device:
            bad("bias", bias.device, f"the device of x, {x.device}")


def check_packed(weight: PackedWeight, device: Device) -> None:
    """Checks that the tensors of a weight fit `device`, as kernels read them without checks.

    Raises:
        ValueError: a tensor is not what packing for `device` makes.
    """
    if weight.layout != device.weight_layout:
        expected = device.weight_layout or "none at all"
        bad("weight", f"packed for {weight.layout}", f"{expected}, the layout of {device.name}")
    if fault := rotation_fault(weight.rotation, weight.activations, weight.k):
        bad("weight.rotation", *fault)
    num_bytes = device.packed_bytes(weight.format, weight.n, weight.k)
    _check_part("data", weight.data, torch.uint8, (num_bytes,))
    if weight.factors is not None:
        _check_part("factors", weight.factors, torch.float32, (weight.n,))
    if weight.input_scale is not None:
        _check_part("input_scale", weight.input_scale, torch.float32, (1,))
    if weight.block_scales is not None:
        blocks = (-(-weight.n // FP8_BLOCK), -(-weight.k // FP8_BLOCK))
        _check_part("block_scales", weight.block_scales, torch.float32, blocks)
    for name, tensor in weight.tensors().items():
        if tensor.device != weight.data.device:
            bad(f"weight.{name}", tensor.device, f"the device of data, {weight.data.device}")


def _check_part(
    name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    if tensor.dtype != dtype or tensor.shape != shape or not tensor.is_contiguous():
        found = f"{tensor.dtype} {list(tensor.shape)}"
        bad(f"weight.{name}", found, f"{dtype} {list(shape)}, contiguous")


def _linear_impl(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Runs `linear` on the arguments of its schema."""
    *weight, bias, out_dtype, x_scales = rest
    return linear_of_flat(x, weight, bias, out_dtype, x_scales, device_for(x.device.type))


def linear_shape(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The result without its values; operators with more arguments share this function."""
    *_, weight = rest[:FLAT_VALUES]
    out_dtype = rest[FLAT_VALUES + 1]
    return x.new_empty((*x.shape[:-1], weight[1]), dtype=out_dtype)


SCHEMA = f"Tensor x, {WEIGHT_SCHEMA}, Tensor? bias, ScalarType out_dtype, Tensor? x_scales"
define(f"linear({SCHEMA}) -> Tensor", _linear_impl, linear_shape)
declare(linear, LinearArguments, limits=limits)
