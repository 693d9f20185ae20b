"""The declarations of the public operators, and their registration with torch.

A module declares its operator once. Everything else finds the parts of a declared operator by its
name (`hk_backend.operators`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend import operators
from hk_backend.devices import device_for, verdict_of_device
from hk_backend.devices.base import Arguments, Request
from hk_backend.ops.schema import Schema
from hk_backend.terms.verdict import Verdict

library = torch.library.Library("hk_backend", "DEF")
"""The single library of this process that defines operators."""


@dataclass(frozen=True)
class Operator:
    """A declared operator.

    Args:
        function: the public function. The first line of its docstring says what it computes.
        limits: whether the operator computes a request on any device; None: it has no requests.
        schema: schema derived from the arguments; None: registered in another form, or not at all.
    """

    name: str
    function: Callable[..., Any]
    limits: Callable[[Any], Verdict] | None
    schema: Schema[Any] | None

    @property
    def summary(self) -> str:
        """Line of Markdown that says what the operator computes."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def devices(self) -> list[str]:
        """The kinds of devices that compute the operator."""
        return [kind for kind in ("cpu", "hip") if operators.part(f"devices.{kind}", self.name)]


OPERATORS: dict[str, Operator] = {}
"""The declared operators by name."""


def declare(
    function: Callable[..., Any],
    arguments: type[Arguments],
    *,
    limits: Callable[[Any], Verdict] | None = None,
) -> None:
    """Declares the operator of `arguments`, a dataclass that names it and that devices run.

    An operator that writes some of its arguments (`arguments.written`) is registered with torch in
    this form. Any other one registers itself (`define`), or is not for compilers.
    """
    name = arguments.operator
    schema = Schema(arguments) if hasattr(arguments, "written") else None
    if schema is not None:
        _define_in_place(schema)
    OPERATORS[name] = Operator(name, function, limits, schema)


def run(arguments: Arguments, tensor: torch.Tensor) -> None:
    """Runs a checked call on the device of `tensor`, through torch where a compiler follows it."""
    if watched(tensor):
        schema = OPERATORS[arguments.operator].schema
        assert schema is not None
        getattr(torch.ops.hk_backend, arguments.operator)(*schema.flatten(arguments))
    else:
        device_for(tensor.device.type).run(arguments)


def supports(request: Request) -> Verdict:
    """Whether the configured device serves `request`; if not, `why` is one line for a user."""
    limits = OPERATORS[request.operator].limits
    assert limits is not None
    return limits(request) and verdict_of_device(
        request.device_type, lambda device: device.verdict(request)
    )


def listing() -> str:
    """The declared operators as a Markdown table, which docs/operator.md shows."""
    rows = [
        f"| `{each.name}` | {each.summary} | {', '.join(each.devices)} |"
        for each in sorted(OPERATORS.values(), key=lambda each: each.name)
    ]
    return "\n".join(["| operator | computes | devices |", "|---|---|---|", *rows])


def define(schema: str, impl: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Registers `hk_backend::<schema>`; `fake` returns results of the right shapes and dtypes."""
    library.define(schema)
    name = schema.partition("(")[0]
    for key in ("CPU", "CUDA"):  # ROCm's torch calls its GPUs CUDA
        library.impl(name, impl, key)
    torch.library.register_fake(f"hk_backend::{name}", fake, lib=library)


def _define_in_place(schema: Schema[Any]) -> None:
    """Registers an operator that a device runs; it writes its arguments and returns nothing."""

    def run_flat(tensor: torch.Tensor, *rest: Any) -> None:
        device_for(tensor.device.type).run(schema.rebuild((tensor, *rest)))

    define(schema.text, run_flat, lambda *flat: None)


def watched(tensor: torch.Tensor) -> bool:
    """Whether a compiler, a tracer or a tensor subclass follows this call.

    If not, a device is called without torch's dispatcher, which costs 10 us for twenty arguments.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or type(tensor) is not torch.Tensor
        or torch._C._len_torch_dispatch_stack() > 0
    )
