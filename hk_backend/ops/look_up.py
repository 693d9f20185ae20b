"""`look_up`: rows of a packed weight, for an embedding that shares it with an LM head."""

from __future__ import annotations

from typing import Any

import torch

from hk_backend.devices import device_for
from hk_backend.ops.linear import check_packed
from hk_backend.ops.registry import declare, define, watched
from hk_backend.terms.checks import bad
from hk_backend.terms.linear_arguments import LookUpArguments
from hk_backend.terms.packed_weight import HOST_LAYOUTS, SCHEMA, PackedWeight
from hk_backend.terms.verdict import SERVED, Verdict, refused
from hk_backend.terms.weight_format import FLOAT_DTYPES


def look_up(ids: torch.Tensor, weight: PackedWeight, out_dtype: torch.dtype) -> torch.Tensor:
    """Rows `ids` of a packed weight, whose rotation, if it has one, is undone.

    Undoing the rotation sums in float32.

    Args:
        ids: int64, any shape; each from 0 to N - 1.
        weight: `[N, K]`, packed by the cpu device.
        out_dtype: bfloat16, float16 or float32.

    Returns:
        `[*ids.shape, K]`; a row with a NaN code is NaN.

    Raises:
        ValueError: an argument that does not fit; the message names it.
        IndexError: a row that does not exist.
    """
    if watched(ids):
        result: torch.Tensor = torch.ops.hk_backend.look_up(ids, *weight.flat(), out_dtype)
        return result
    return _run(ids, weight, out_dtype)


def supports_look_up(layout: str) -> Verdict:
    """Whether there is a kernel that looks up rows of a weight packed in `layout`."""
    if layout in HOST_LAYOUTS:
        return SERVED
    return refused(f"{layout} has no kernel that looks up rows of a packed weight")


def _run(ids: torch.Tensor, weight: PackedWeight, out_dtype: torch.dtype) -> torch.Tensor:
    if ids.dtype != torch.int64:
        bad("ids", ids.dtype, "int64")
    if out_dtype not in FLOAT_DTYPES:
        bad("out_dtype", out_dtype, "bfloat16, float16 or float32")
    if not supports_look_up(weight.layout):
        bad("weight", f"packed for {weight.layout}", "one that the cpu device has packed")
    if ids.device != weight.data.device:
        bad("ids", ids.device, f"the device of weight, {weight.data.device}")
    device = device_for(ids.device.type)
    check_packed(weight, device)
    out = torch.empty((ids.numel(), weight.k), dtype=out_dtype, device=ids.device)
    device.run(LookUpArguments(ids.reshape(-1).contiguous(), weight, out))
    return out.view(*ids.shape, weight.k)


def _impl(ids: torch.Tensor, *rest: Any) -> torch.Tensor:
    *weight, out_dtype = rest
    return _run(ids, PackedWeight.from_flat(weight), out_dtype)


def _shape(ids: torch.Tensor, *rest: Any) -> torch.Tensor:
    *_, ints, out_dtype = rest
    return ids.new_empty((*ids.shape, ints[2]), dtype=out_dtype)


define(f"look_up(Tensor ids, {SCHEMA}, ScalarType out_dtype) -> Tensor", _impl, _shape)
declare(look_up, LookUpArguments)
