"""An engine's layer and its weight: served or not, packed, released, and named in errors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch

from hk_backend.engine.linear.kept import or_kept
from hk_backend.engine.linear.route import ROUTE, Original, attach, is_attached
from hk_backend.engine.linear.shards import CheckpointError, name_of, shard_names, shards_of
from hk_backend.engine.linear.unset import check_scales, check_weight
from hk_backend.ops import LinearRequest, WeightError, pack_weight, supports_linear
from hk_backend.routing.routes import routes
from hk_backend.terms.verdict import Verdict, refused

FORMAT_OF = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8_e4m3fn",
    torch.float8_e4m3fnuz: "fp8_e4m3fnuz",
}


def verdict_on(request: LinearRequest) -> Verdict:
    """Whether HK can serve a layer in this process. `evidence` decides whether HK is faster."""
    off = routes.verdict(ROUTE)
    if not off:
        return off
    try:
        return supports_linear(request)
    except Exception as error:  # a device whose extension does not load
        return refused(f"{type(error).__name__}: {error}")


def pack_layer(
    layer: Any,
    weight: torch.Tensor,
    format: str,
    scales: torch.Tensor | None = None,
    *,
    activations: str = "none",
    input_scale: torch.Tensor | None = None,
    rotation: int = 0,
    names: Mapping[str, str] | None = None,
) -> None:
    """Packs `weight` and attaches it to `layer`; the arguments are those of `pack_weight`.

    Args:
        names: the layer's names of the arguments "weight", "scales" and "input_scale" (default:
            "weight", "weight_scale", "input_scale").

    Raises:
        CheckpointError: a tensor cannot be packed; the message has its checkpoint name. In a reload
            (`hk_backend.engine.linear.kept`) the layer keeps its packed weight instead.
    """
    called = {"weight": "weight", "scales": "weight_scale", "input_scale": "input_scale"}
    called |= names or {}
    weight, scales = weight.detach(), None if scales is None else scales.detach()
    with or_kept(layer):
        check_weight(layer, weight, called["weight"])
        if scales is not None:
            check_scales(layer, weight, scales, called["scales"])
        try:
            packed = pack_weight(
                weight,
                format,
                scales,
                activations=activations,
                input_scale=input_scale,
                rotation=rotation,
            )
        except WeightError as error:
            raise CheckpointError(_blame(layer, weight, format, scales, error, called)) from error
        name = name_of(layer)
        original = Original(name, weight, format, scales, activations, input_scale, rotation)
        attach(layer, packed, original)


def release(layer: Any, *parameters: str) -> None:
    """Frees the tensors that a packed weight was made of.

    `layer.weight` stays, without elements, as LoRA and others ask it for its device and dtype. They
    may do so on an engine's own CPU path, too.
    """
    for name in parameters:
        if layer._parameters.get(name) is not None:
            delattr(layer, name)
    weight = layer._parameters.get("weight")
    if weight is not None:
        empty = torch.empty(0, dtype=weight.dtype, device=weight.device)
        layer.weight = torch.nn.Parameter(empty, requires_grad=False)
        freed, on_host = weight.nbytes, weight.device.type == "cpu"
        del weight
        if on_host:
            return_memory(freed)


def is_released(layer: Any) -> bool:
    """Whether `layer` is packed and has no new weight to process."""
    weight = layer._parameters.get("weight")
    return is_attached(layer) and weight is not None and weight.numel() == 0


def return_memory(freed: int) -> None:
    """Makes the allocator return freed memory from time to time.

    glibc keeps blocks of up to 32 MiB. Packed weights, aligned to cache lines, do not fit into the
    freed places of the original ones. Otherwise half as much memory again as the model would stay.
    """
    Freed.since_trim += freed
    if Freed.since_trim < TRIM_BYTES:
        return
    Freed.since_trim = 0
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not every C library has it
    if trim is not None:
        trim(0)


class Freed:
    """Bytes that this process has freed since it last asked the allocator to return memory."""

    since_trim = 0


TRIM_BYTES = 32 << 20
"""Freed bytes between two requests to the allocator."""


def _blame(
    layer: Any,
    weight: torch.Tensor,
    format: str,
    scales: torch.Tensor | None,
    error: WeightError,
    called: Mapping[str, str],
) -> str:
    """Text of the error of `pack_weight`, with the checkpoint's name of the tensor."""
    parameter = called[error.argument]
    names = shard_names(layer, parameter)
    if len(names) > 1 and error.argument == "scales" and scales is not None:
        for name, part in zip(names, shards_of(layer, weight, scales), strict=True):
            try:
                pack_weight(part[0], format, part[1])
            except WeightError as of_shard:
                return _renamed(of_shard, name)
    return _renamed(error, " + ".join(names))


def _renamed(error: WeightError, name: str) -> str:
    return f"{name}{str(error).removeprefix(error.argument)}"
