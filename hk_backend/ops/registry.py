"""Registration of operators with torch, and the test whether a call must go through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hk_backend.devices import device_for
from hk_backend.ops.schema import Schema

library = torch.library.Library("hk_backend", "DEF")
"""The single library of this process that defines operators."""


def define(schema: str, impl: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Registers `hk_backend::<schema>`; `fake` returns results of the right shapes and dtypes."""
    library.define(schema)
    name = schema.partition("(")[0]
    for key in ("CPU", "CUDA"):  # ROCm's torch calls its GPUs CUDA
        library.impl(name, impl, key)
    torch.library.register_fake(f"hk_backend::{name}", fake, lib=library)


def define_in_place(schema: Schema[Any]) -> None:
    """Registers an operator that a device runs; it writes its arguments and returns nothing."""

    def run(tensor: torch.Tensor, *rest: Any) -> None:
        device_for(tensor.device.type).run(schema.rebuild((tensor, *rest)))

    define(schema.text, run, lambda *flat: None)


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
