"""An engine's layer and its weight: served or not, packed, released, and named in errors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import torch

from hk_backend.engine.linear.checkpoint_tensors import (
    check_weight,
    checked_scales,
    one_input_scale,
)
from hk_backend.engine.linear.kept import or_kept
from hk_backend.engine.linear.original import Original
from hk_backend.engine.linear.route import ROUTE, attach, is_attached
from hk_backend.engine.linear.shards import CheckpointError, Shards, name_of
from hk_backend.ops import LinearRequest, WeightError, pack_weight, supports
from hk_backend.routing.routes import routes
from hk_backend.terms.verdict import Verdict, refused

FORMAT_OF = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8_e4m3fn",
    torch.float8_e4m3fnuz: "fp8_e4m3fnuz",
}


def request_of(weight: torch.Tensor) -> LinearRequest:
    """The request for a layer with the unquantised `weight` `[N, K]`."""
    return LinearRequest(weight.device.type, weight.dtype, FORMAT_OF[weight.dtype], *weight.shape)


def verdict_on(request: LinearRequest, refusal: str = "") -> Verdict:
    """Whether HK can serve a layer in this process. `evidence` decides whether HK is faster.

    Args:
        refusal: reason why HK serves no layer of this engine; or empty.
    """
    route = routes.verdict(ROUTE)
    if not route or refusal:
        return route and refused(refusal)
    try:
        return supports(request)
    except Exception as error:  # a device whose extension does not load
        return refused(f"{type(error).__name__}: {error}")


EXPERTS = "experts of a mixture: HK has no kernel for them"


def no_kernel(chosen: Any) -> str:
    """Reason for a layer whose method, kernel or configuration has no counterpart in HK."""
    return f"{type(chosen).__name__}: HK has no kernel for it"


def pack_layer(
    layer: Any,
    weight: torch.Tensor,
    format: str,
    scales: torch.Tensor | None = None,
    *,
    activations: str = "none",
    static: bool = False,
    rotation: int = 0,
    names: Mapping[str, str] | None = None,
) -> None:
    """Packs a loaded weight and attaches it to `layer`; other arguments are those of `pack_weight`.

    Args:
        scales: as the checkpoint holds them, also one for each shard of a merged layer.
        static: whether activations have a static scale, `layer.input_scale`, perhaps one for each
            shard.
        names: the layer's names of the arguments "weight" and "scales" (default: "weight",
            "weight_scale").

    Raises:
        CheckpointError: a tensor is missing, or cannot be packed; the message has its checkpoint
            name. In a reload (`hk_backend.engine.linear.kept`) the layer keeps its packed weight
            instead.
    """
    called = {"weight": "weight", "scales": "weight_scale", "input_scale": "input_scale"}
    called |= names or {}
    weight, shards, input_scale = weight.detach(), Shards.of(layer, len(weight)), None
    with or_kept(layer):
        check_weight(shards, weight, called["weight"])
        if scales is not None:
            scales = checked_scales(shards, weight, scales.detach(), called["scales"])
        if static:
            input_scale = one_input_scale(shards, layer.input_scale)
        original = Original(
            name_of(layer), weight, format, scales, activations, input_scale, rotation
        )
        try:
            packed = original.packed()
        except WeightError as error:
            raise CheckpointError(_blame(shards, original, error, called)) from error
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
    shards: Shards, original: Original, error: WeightError, called: Mapping[str, str]
) -> str:
    """Text of the error of `pack_weight`, with the checkpoint's name of the tensor."""
    names, scales = shards.names(called[error.argument]), original.scales
    if len(names) > 1 and error.argument == "scales" and scales is not None:
        for name, part in zip(names, shards.split(original.weight, scales), strict=True):
            try:
                pack_weight(
                    part[0],
                    original.format,
                    part[1],
                    activations=original.activations,
                    rotation=original.rotation,
                )
            except WeightError as of_shard:
                return _renamed(of_shard, name)
    return _renamed(error, " + ".join(names))


def _renamed(error: WeightError, name: str) -> str:
    return f"{name}{str(error).removeprefix(error.argument)}"
