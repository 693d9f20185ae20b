"""A launch of the gemm kernels: tensors and numbers of their argument, from those of a layer."""

from __future__ import annotations

from dataclasses import replace

import torch

from hk_backend.devices.hip import mx_layout
from hk_backend.devices.hip.call import KernelCall, Work, bad
from hk_backend.devices.hip.linear_family import ALIGNMENT, TYPES, family_of
from hk_backend.devices.hip.weight_layout import FORMATS_OF
from hk_backend.kernels import Catalogue
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.packed_weight import PackedWeight
from hk_backend.terms.weight_format import FORMATS

ROW_BYTES = 2**23
"""Exclusive bound of the bytes from one row to the next."""
NO_STRIDES = {"a_scale_row": 0, "a_scale_step": 0}


def call_of(of: LinearArguments, kernels: Catalogue) -> KernelCall:
    """The launch for x in the form that the kernels multiply, with all of them as candidates.

    x is what `quantisation` says, or it is taken as it is.
    """
    weight = of.weight
    rows = of.out.shape[0]
    by_block = weight.block_scales is not None or weight.activations == "token_block"
    is_rounded = of.x_scales is not None
    x = weight.x_format if is_rounded and weight.x_format is not None else of.x.dtype
    family = family_of(kernels, weight.format, x, by_block)
    if not family:
        found = f"{weight.format} with activations {weight.activations!r} and x in {of.x.dtype}"
        bad("weight", found, " or ".join(FORMATS_OF))
    is_mx = weight.x_format is not None and weight.x_format.is_mx
    tensors, numbers = _of_mx(of) if is_mx else _of_rows(of, by_block)
    bias = None if of.bias is None else _words_of_4_bytes(of.bias)
    optional = {"b_scale": weight.factors, "bias": bias}
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    tensors["c"] = of.out
    sizes = {"m": rows, "n": weight.n}
    numbers |= {
        "c_row": of.out.stride(0) if rows > 1 else weight.n,
        "k": weight.k,
        "splits": 1,
        "c_type": TYPES[of.out.dtype],
        "bias_type": 0 if bias is None else TYPES[bias.dtype],
    }
    return KernelCall(family, tensors, numbers | sizes, sizes, Work(rows, "rows of linear layers"))


Parts = tuple[dict[str, torch.Tensor], dict[str, float]]
"""Tensors and numbers of the kernels' argument."""


def _of_rows(of: LinearArguments, by_block: bool) -> Parts:
    """The operands where x has contiguous rows."""
    x, x_scales, weight = rows_of_16_bytes(of.x), of.x_scales, of.weight
    if x_scales is not None and not by_block:
        x_scales = x_scales.contiguous()
    data, of_weights = weight.data, weight.block_scales
    if FORMATS[weight.format].is_mx:
        data, of_weights = _codes_and_scales(weight)
    optional = {"a_scale": x_scales, "b_block_scale": of_weights}
    tensors = {name: tensor for name, tensor in optional.items() if tensor is not None}
    row = x.stride(0) if x.shape[0] > 1 else weight.k
    return {"a": x, "b": data, **tensors}, {"a_row": row, **_scale_strides(x_scales)}


def _of_mx(of: LinearArguments) -> Parts:
    """The operands in MX formats: codes and scales of both sides, packed (mx_layout.py)."""
    assert of.x_scales is not None
    codes, scales = _codes_and_scales(of.weight)
    tensors = {"a": of.x, "a_scale": of.x_scales, "b": codes, "b_block_scale": scales}
    return tensors, {"a_row": 0, **NO_STRIDES}


def _codes_and_scales(weight: PackedWeight) -> tuple[torch.Tensor, torch.Tensor]:
    """The two parts of a packed weight in an MX format."""
    codes = mx_layout.code_bytes(weight.format, weight.n, weight.k)
    return weight.data[:codes], weight.data[codes:]


def _scale_strides(scales: torch.Tensor | None) -> dict[str, float]:
    """Elements between scales of neighbouring rows, and of neighbouring blocks; 0: only one."""
    if scales is None:
        return {**NO_STRIDES}
    strides = (
        0 if length == 1 else stride
        for length, stride in zip(scales.shape, scales.stride(), strict=True)
    )
    return dict(zip(NO_STRIDES, strides, strict=True))


def arrives_in_mx(of: LinearArguments) -> bool:
    """Whether x arrives as rows of MX codes, which kernels do not read as they lie."""
    is_mx = of.weight.x_format is not None and of.weight.x_format.is_mx
    return is_mx and of.x_scales is not None and of.x.dim() == 2


def in_kernels_order(of: LinearArguments) -> LinearArguments:
    """The same product, with x in the kernels' order if it arrives in an MX format."""
    if not arrives_in_mx(of):
        return of
    assert of.weight.x_format is not None
    assert of.x_scales is not None
    codes = mx_layout.packed_codes(of.x.view(torch.uint8), of.weight.x_format.name)
    return replace(of, x=codes, x_scales=mx_layout.packed_scales(of.x_scales))


def has_rows_of_16_bytes(x: torch.Tensor) -> bool:
    """Whether kernels can read the rows of x in place."""
    row = x.stride(0) * x.element_size() if x.shape[0] > 1 else 0
    return x.data_ptr() % ALIGNMENT == row % ALIGNMENT == 0 and row < ROW_BYTES


def rows_of_16_bytes(x: torch.Tensor) -> torch.Tensor:
    """x, or a contiguous copy if kernels cannot read its rows in place."""
    return x if has_rows_of_16_bytes(x) else x.clone(memory_format=torch.contiguous_format)


def has_words(bias: torch.Tensor) -> bool:
    """Whether a bias begins and ends at multiples of 4 bytes."""
    return bias.data_ptr() % 4 == bias.nbytes % 4 == 0


def _words_of_4_bytes(bias: torch.Tensor) -> torch.Tensor:
    """The bias, converted to float32 if the kernels cannot read its words."""
    return bias if has_words(bias) else bias.float()
