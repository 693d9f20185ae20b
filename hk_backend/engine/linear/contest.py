"""The contest for a linear layer: HK's product beside the engine's.

    ours = stand_in(layer)
    pack_layer(ours, layer.weight.data, "bf16")
    contest_of(ours, lambda x: gemm(x, weight), request, rows_up_to(2048))

Setting a tensor on a stand-in does not change the layer, which keeps its weight whoever wins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

from hk_backend.devices import device_for
from hk_backend.engine.evidence import MODELLED, Call, Contest, Decision, Kind, Ranks, decide
from hk_backend.engine.evidence.decision import duration
from hk_backend.engine.linear.packed_layer import FORMAT_OF, pack_layer
from hk_backend.engine.linear.route import ROUTE, apply, measuring
from hk_backend.engine.patching import original
from hk_backend.ops import LinearRequest

logger = logging.getLogger(__name__)

ROWS = (1, 8, 64, 512)
"""Numbers of rows to measure below an engine's limit: decoding, and prompts of some lengths."""

MODELLED_ROWS = (1, 64, 4096)
"""Numbers of rows of modelled times in the log: decoding, a short prompt, a long one."""

Multiply = Callable[[torch.Tensor], object]
"""Computes a layer's product with activations `[rows, K]`."""


def rows_up_to(limit: int) -> tuple[int, ...]:
    """Numbers of rows to measure.

    Args:
        limit: most rows that the engine computes at once, at least 1.
    """
    return (*(rows for rows in ROWS if rows < limit), limit)


Sides = Callable[[], tuple[torch.nn.Module, Multiply]]
"""Makes a stand-in with HK's weight attached, and the engine's product; may raise `NoContest`."""


@dataclass(frozen=True)
class Contests:
    """The contests for linear layers in one engine.

    Args:
        engine: "vLLM" or "SGLang".
        ranks: returns the ranks that share a model's layers.
        largest_batch: returns the most rows that a layer, or a head if told so, computes at once.
        mode: makes the context in which the engine runs requests.
    """

    engine: str
    ranks: Callable[[], Ranks]
    largest_batch: Callable[[bool], int]
    mode: Callable[[], AbstractContextManager[object]] = nullcontext

    def decide(
        self, theirs: str, request: LinearRequest, sides: Sides, is_head: bool = False
    ) -> Decision:
        """Decides who computes a kind of linear layer (`evidence.decide`).

        Args:
            theirs: name of the engine's own way to compute the layer.
            request: the layer, with all that decides its speed.
            is_head: whether it computes logits, of fewer rows than other layers.
        """

        def contest() -> Contest:
            return contest_of(*sides(), request, rows_up_to(self.largest_batch(is_head)))

        device = device_for(request.device_type).name
        kind = Kind(ROUTE, self.engine, device, _described(request, is_head), theirs)
        with measuring(), self.mode():
            decision = decide(kind, contest, self.ranks())
        say_modelled(decision, request)
        return decision

    def why_slower(
        self, layer: Any, theirs: str, request: LinearRequest, sides: Sides, is_head: bool = False
    ) -> str:
        """Reason why the engine computes `layer`, which HK could serve; empty if HK does.

        A layer's answer is kept, so new weights are never measured.
        """
        held = layer.__dict__
        if "hk_decision" not in held:
            held["hk_decision"] = self.decide(theirs, request, sides, is_head)
        why: str = held["hk_decision"].verdict.why
        return why


def _described(request: LinearRequest, is_head: bool) -> str:
    """Readable text of all that decides the speed of a layer."""
    dtype = str(request.dtype).removeprefix("torch.")
    facts = [f"{request.format} {request.n}x{request.k} from {dtype}"]
    if request.activations != "none":
        facts.append(f"activations {request.activations}")
    if request.scale_kind not in (None, "none"):
        facts.append(f"scales {request.scale_kind}")
    return ", ".join([*facts, "logits"] if is_head else facts)


def contest_of(
    ours: torch.nn.Module, theirs: Multiply, request: LinearRequest, rows: tuple[int, ...]
) -> Contest:
    """Makes both sides compute the same random activations.

    Args:
        ours: a stand-in with HK's weight attached.
        theirs: the engine's own product.
        rows: numbers of rows to measure, ascending.
    """

    def call(multiply: Multiply, rows: int) -> Call:
        x = activations(rows, request)
        return lambda: multiply(x)

    return Contest(rows, partial(call, partial(apply, ours)), partial(call, theirs))


def activations(rows: int, request: LinearRequest) -> torch.Tensor:
    """Random rows of x, `[rows, K]` in the layer's dtype, the same at each call."""
    device = request.device_type
    generator = torch.Generator(device).manual_seed(0)
    shape = (rows, request.k)
    return torch.randn(shape, generator=generator, dtype=request.dtype, device=device)


def stand_in(layer: Any) -> Any:
    """A shallow copy of `layer`, which shares its tensors.

    Setting tensors and attributes on the copy does not change the layer.
    """
    found = copy(layer)
    for registry in ("_parameters", "_buffers", "_modules"):
        found.__dict__[registry] = dict(layer.__dict__[registry])
    return found


def packed(layer: Any) -> torch.nn.Module:
    """A stand-in for an unquantised `layer` whose weight HK has packed."""
    found: torch.nn.Module = stand_in(layer)
    pack_layer(found, layer.weight.data, FORMAT_OF[layer.weight.dtype])
    return found


def unquantised_sides(method: Any, layer: Any, stock: Any) -> tuple[torch.nn.Module, Multiply]:
    """Both ways to compute an unquantised `layer`: packed by HK, and by the engine's `method`.

    Args:
        stock: the class of the method, with the functions that HK has replaced.
    """
    theirs, compute = with_own_tensors(layer), original(stock.apply)
    original(stock.process_weights_after_loading)(method, theirs)
    return packed(layer), lambda x: compute(method, theirs, x)


def with_own_tensors(layer: Any) -> Any:
    """A stand-in with copies of the layer's parameters, as an engine may change them in place."""
    found = stand_in(layer)
    for name, parameter in layer._parameters.items():
        if parameter is not None:
            found._parameters[name] = _copied(parameter)
    return found


def _copied(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    """A copy with the same values, class and attributes, as engines may ask for all three."""
    data = parameter.detach().clone()
    copied: torch.nn.Parameter = torch.Tensor._make_subclass(type(parameter), data, False)
    copied.__dict__.update(parameter.__dict__)
    return copied


@cache
def say_modelled(decision: Decision, request: LinearRequest) -> None:
    """Logs HK's modelled times for a kind of layer that is served without a measurement.

    One line per kind; other decisions log nothing.
    """
    if decision.note != MODELLED:
        return
    device: Any = device_for(request.device_type)
    times = (f"{rows}: {duration(device.microseconds(request, rows))}" for rows in MODELLED_ROWS)
    said = "hk_backend: %s is served: %s; HK by rows: %s"
    logger.info(said, decision.kind, decision.note, ", ".join(times))
