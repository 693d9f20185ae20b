"""`linear` as an engine's layer calls it: counted, and checked against the reference.

A layer keeps its packed weight in buffers (`attach`) for its device and instruction set, and its
forward calls `apply`. torch.compile traces Python only once. So everything that happens on each
call happens inside a registered operator, `hk_backend::routed_linear`.

With HK_CHECK the layer also keeps the tensors that its weight was packed from, for the reference.
This doubles its memory. If a check fails, the route is switched off. The reference then computes
every layer, slow but right, as the engine no longer has a weight of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakSet

import torch

from hk_backend.config import get_config
from hk_backend.devices import device_for
from hk_backend.engine.holding import holding
from hk_backend.engine.linear.original import Original
from hk_backend.ops.linear import SCHEMA, linear_of_flat, linear_shape
from hk_backend.ops.registry import define, watched
from hk_backend.routing.metrics import count
from hk_backend.routing.routes import Outcome, routes
from hk_backend.routing.shadow_check import ShadowCheck
from hk_backend.terms.checks import bad
from hk_backend.terms.packed_weight import HOST_LAYOUTS, PackedWeight
from hk_backend.terms.weight_format import FORMATS

ROUTE = "linear"
PREFIX = "hk_"
"""Prefix of the buffers that hold a packed weight's tensors."""


class RoutedLinearError(RuntimeError):
    """HK_STRICT=1 and HK_CHECK found a difference; the message says where and how large."""


_dummy_runs: list[Callable[[], bool]] = []


def tell_dummy_runs(is_dummy: Callable[[], bool]) -> None:
    """Registers `is_dummy`, which tells on each call whether the engine profiles or warms up."""
    _dummy_runs[:] = [is_dummy]


def measuring() -> AbstractContextManager[None]:
    """Context for timing a layer beside the engine's own: calls count as dummies, unchecked."""
    return holding(_measuring, True)


_measuring: ContextVar[bool] = ContextVar("measuring", default=False)


def attach(layer: torch.nn.Module, packed: PackedWeight, original: Original) -> None:
    """Gives `layer` its packed weight: buffers, and the numbers that go with them.

    Attaching again copies the new weight over the one that compiled graphs hold.

    Raises:
        ValueError: a second weight has another shape, format or scales.
    """
    if FORMATS[packed.format].has_nan_code and packed.factors is None:
        # another weight may need factors, in the same compiled graph
        ones = torch.ones(packed.n, dtype=torch.float32, device=packed.data.device)
        packed = replace(packed, factors=ones)
    held: PackedWeight | None = layer.__dict__.get("hk_packed")
    if held is None:
        held = layer.__dict__["hk_packed"] = packed
    elif _kind(held) != _kind(packed):
        bad("packed", _named(packed), _named(held))
    else:
        for field, tensor in packed.tensors().items():
            held.tensors()[field].copy_(tensor)
    keep(layer)
    if get_config().check > 0:
        layer.__dict__["hk_original"] = original
        _checked_layers.add(layer)


def keep(layer: torch.nn.Module) -> None:
    """Registers the buffers of a layer's packed weight, which a reload may have removed."""
    held: PackedWeight = layer.__dict__["hk_packed"]
    for field, tensor in held.tensors().items():
        layer.register_buffer(PREFIX + field, tensor)
    layer.hk_weight = held.as_ints()  # type: ignore[assignment]


def move(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Moves the packed weight of `source` to `target`, in the same memory.

    `source` keeps its buffers, but is not attached any more.
    """
    for name in ("hk_packed", "hk_original"):
        target.__dict__.pop(name, None)
        if name in source.__dict__:
            target.__dict__[name] = source.__dict__.pop(name)
    _checked_layers.discard(source)
    _checked_layers.discard(target)
    if "hk_original" in target.__dict__:
        _checked_layers.add(target)
    keep(target)
    del source.hk_weight


def _kind(weight: PackedWeight) -> tuple[object, ...]:
    """The properties of a weight that compiled graphs rely on."""
    return weight.as_ints(), weight.tensors().keys()


def _named(weight: PackedWeight) -> str:
    """Text with the properties that `_kind` compares."""
    tensors = " and ".join(weight.tensors())
    rotation = f" rotated by {weight.rotation}" if weight.rotation else ""
    return (
        f"[{weight.n}, {weight.k}] in {weight.format} for {weight.layout}, activations "
        f"{weight.activations!r}{rotation}, with {tensors}"
    )


def is_attached(layer: torch.nn.Module) -> bool:
    """Whether `layer` computes with a packed weight."""
    return hasattr(layer, "hk_weight")


def is_on_host(layer: torch.nn.Module) -> bool:
    """Whether the cpu device computes `layer`."""
    layout: int = layer.hk_weight[-1]  # type: ignore[index, assignment]
    return layout < len(HOST_LAYOUTS)


def apply(
    layer: torch.nn.Module,
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    x_scales: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes `linear` with the weight attached to `layer`; other arguments are the same."""
    buffers = layer._buffers  # a module's own lookup of four attributes takes 3 us
    run: Callable[..., torch.Tensor] = _routed_linear
    if watched(x):
        run = torch.ops.hk_backend.routed_linear
    return run(
        x,
        buffers["hk_data"],
        buffers.get("hk_factors"),
        buffers.get("hk_block_scales"),
        buffers.get("hk_input_scale"),
        layer.hk_weight,
        bias,
        out_dtype or x.dtype,
        x_scales,
        ROUTE,
    )


def packed_or(compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """An engine's `compute(method, layer, x, bias)`, for which HK computes layers it has packed."""

    def apply_packed(
        self: Any, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return apply(layer, x, bias) if is_attached(layer) else compute(self, layer, x, bias)

    return apply_packed


def _routed_linear(
    x: torch.Tensor,
    data: torch.Tensor,
    factors: torch.Tensor | None,
    block_scales: torch.Tensor | None,
    input_scale: torch.Tensor | None,
    ints: Sequence[int],
    bias: torch.Tensor | None,
    out_dtype: torch.dtype,
    x_scales: torch.Tensor | None,
    route: str,
) -> torch.Tensor:
    """Runs the operator on the arguments of its schema."""
    k = ints[2]
    tokens = x.numel() // k
    if routes.is_disabled(route):
        count(route, "fallback", tokens, routes.verdict(route).why)
        return _original_of(data).multiply(x, bias, out_dtype, x_scales)
    device = device_for(x.device.type)
    weight = data, factors, block_scales, input_scale, ints
    out = linear_of_flat(x, weight, bias, out_dtype, x_scales, device)
    capturing = device.is_capturing()
    count(route, _outcome(capturing), tokens)
    check = _check_of(route)
    if not _measuring.get() and check.due(lambda: capturing):
        original = _original_of(data)
        expected = original.multiply(x, bias, torch.float64, x_scales)
        why = check.linear(out, expected, original.name).why
        if why:
            if get_config().strict:
                raise RoutedLinearError(why)
            routes.disable(route, why)
            return original.multiply(x, bias, out_dtype, x_scales)
    return out


def _outcome(capturing: bool) -> Outcome:
    if capturing:  # during a run that may not count as a dummy for the engine, as it has metadata
        return "captured"
    if _measuring.get() or any(is_dummy() for is_dummy in _dummy_runs):
        return "dummy"
    return "served"


define(f"routed_linear({SCHEMA}, str route) -> Tensor", _routed_linear, linear_shape)

_checked_layers: WeakSet[torch.nn.Module] = WeakSet()


@cache
def _check_of(route: str) -> ShadowCheck:
    return ShadowCheck(route, get_config().check)


def _original_of(data: torch.Tensor) -> Original:
    """The original tensors of the layer that holds `data`."""
    for layer in _checked_layers:
        if layer.hk_data.data_ptr() == data.data_ptr():  # type: ignore[operator]
            found: Original = layer.__dict__["hk_original"]
            return found
    raise RuntimeError(f"route {ROUTE} is off, and without HK_CHECK nothing else has its weights")
