"""The contest for a linear layer: HK's product beside the engine's.

    ours = stand_in(layer)
    pack_layer(ours, layer.weight.data, "bf16")
    contest_of(ours, lambda x: gemm(x, weight), request, rows_up_to(2048))

Setting a tensor on a stand-in does not change the layer, which keeps its weight whoever wins.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import torch

from hk_backend.devices import device_for
from hk_backend.engine.evidence import Call, Contest, Decision, Kind, Ranks, decide
from hk_backend.engine.linear.modelled import say_modelled
from hk_backend.engine.linear.route import ROUTE, apply, measuring
from hk_backend.ops import LinearRequest

ROWS = (1, 8, 64, 512)
"""Numbers of rows to measure below an engine's limit: decoding, and prompts of some lengths."""

Multiply = Callable[[torch.Tensor], object]
"""Computes a layer's product with activations `[rows, K]`."""


def rows_up_to(limit: int) -> tuple[int, ...]:
    """Numbers of rows to measure.

    Args:
        limit: most rows that the engine computes at once, at least 1.
    """
    return (*(rows for rows in ROWS if rows < limit), limit)


def decide_linear(
    engine: str,
    theirs: str,
    request: LinearRequest,
    contest: Callable[[], Contest],
    ranks: Ranks,
    *,
    is_head: bool = False,
) -> Decision:
    """Decides who computes a kind of linear layer (`evidence.decide`).

    Args:
        engine: "vLLM" or "SGLang".
        theirs: name of the engine's own way to compute the layer.
        request: the layer, with all that decides its speed.
        is_head: whether it computes logits, of fewer rows than other layers.
    """
    dtype = str(request.dtype).removeprefix("torch.")
    facts = [f"{request.format} {request.n}x{request.k} from {dtype}"]
    if request.activations != "none":
        facts.append(f"activations {request.activations}")
    if request.scale_kind not in (None, "none"):
        facts.append(f"scales {request.scale_kind}")
    if is_head:
        facts.append("logits")
    device = device_for(request.device_type).name
    with measuring():
        kind = Kind(ROUTE, engine, device, ", ".join(facts), theirs)
        decision = decide(kind, contest, ranks)
    say_modelled(decision, request)
    return decision


def contest_of(
    ours: torch.nn.Module, theirs: Multiply, request: LinearRequest, rows: tuple[int, ...]
) -> Contest:
    """Makes both sides compute the same random activations.

    Args:
        ours: a stand-in with HK's weight attached.
        theirs: the engine's own product.
        rows: numbers of rows to measure, ascending.
    """

    def calls(multiply: Multiply) -> Callable[[int], Call]:
        def call_of(rows: int) -> Call:
            x = activations(rows, request)
            return lambda: multiply(x)

        return call_of

    return Contest(rows, calls(lambda x: apply(ours, x)), calls(theirs))


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
