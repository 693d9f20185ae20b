"""Where an engine is faster without HK, and therefore keeps its own kernels by default.

The table follows docs/benchmarks.md. A loss without `below_tokens` applies to a layer
when it is constructed; one with it applies to each step. Naming a device in `HK_DEVICE`, or
`HK_EVIDENCE=ignore`, lets HK serve anyway.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hk_backend import machine
from hk_backend.config import get_config
from hk_backend.devices import device_for
from hk_backend.terms.verdict import SERVED, Verdict, refused

LEVELS = ("portable", "avx2", "avx512", "amx")
"""Instruction sets, each with all before it."""
SAID = "faster without HK"
"""How every reason of this file begins."""


@dataclass(frozen=True)
class Loss:
    """One measurement that HK lost, on a CPU.

    `operator`: the route. `dtype`: of attention's queries, or of a layer's unquantised weight.
    `isa`: the smallest instruction set of `LEVELS` that it holds for. `engine`: "" for every one.
    `below_tokens`: it holds for steps whose longest row has fewer query tokens; 0: for all.
    `figure`: what was measured; `source`: where that is written, a heading of docs/benchmarks.md.
    """

    operator: str
    dtype: torch.dtype
    isa: str
    figure: str
    source: str
    engine: str = ""
    below_tokens: int = 0

    @property
    def why(self) -> str:
        """The reason, as users and counters read it."""
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{SAID}: {self.operator} in {dtype}, {self.figure}"


ATTENTION = "Attention: what was measured"
LOSSES = (
    Loss(
        "attention",
        torch.bfloat16,
        "amx",
        "on a CPU with AMX: 0.31 to 0.52 of CPU_ATTN's speed",
        ATTENTION,
    ),
    Loss(
        "attention",
        torch.float32,
        "avx512",
        "prompts below 128 tokens with AVX-512: 0.62 to 0.81 of CPU_ATTN's speed at 32",
        ATTENTION,
        below_tokens=128,
    ),
    Loss(
        "linear",
        torch.bfloat16,
        "amx",
        "on a CPU with AMX: oneDNN's tiles multiply 16 times as much per clock (not measured)",
        "AVX-512, AMX and bfloat16",
    ),
    Loss(
        "linear",
        torch.float32,
        "avx512",
        "with AVX-512: 0.87 of stock's speed",
        "Linear layers: what was measured",
    ),
    Loss(
        "linear",
        torch.float32,
        "avx2",
        "through SGLang: a decoded token takes 1.10 of stock's time",
        "Through SGLang: what was measured",
        engine="SGLang",
    ),
)


def losses(operator: str, dtype: torch.dtype, device_type: str, engine: str) -> tuple[Loss, ...]:
    """What speaks against HK for a layer, unless the user has decided.

    Args:
        dtype: see `Loss`. device_type: torch's name of where the layer's tensors are.
        engine: "vLLM" or "SGLang".
    """
    config = get_config()
    if device_type != "cpu" or config.device != "auto" or config.evidence == "ignore":
        return ()
    known = [
        loss
        for loss in LOSSES
        if (loss.operator, loss.dtype) == (operator, dtype) and loss.engine in ("", engine)
    ]
    if not known or not device_for("cpu").name.startswith("cpu:"):  # another device: not measured
        return ()
    level = LEVELS.index(host_isa(operator))
    return tuple(loss for loss in known if LEVELS.index(loss.isa) <= level)


def verdict(operator: str, dtype: torch.dtype, device_type: str, engine: str) -> Verdict:
    """Whether HK serves a layer, whatever the number of tokens (arguments: see `losses`)."""
    found = losses(operator, dtype, device_type, engine)
    return next((refused(loss.why) for loss in found if not loss.below_tokens), SERVED)


def why_not_step(found: Sequence[Loss], longest: int) -> str:
    """Why a step whose longest row has `longest` query tokens is the engine's, or nothing."""
    return next((loss.why for loss in found if longest < loss.below_tokens), "")


def host_isa(operator: str) -> str:
    """The largest instruction set that the engine's own kernels use here."""
    # vLLM's attention asks the processor, whatever oneDNN is limited to
    amx = torch_uses_amx() if operator == "linear" else machine.advertises_amx()
    return "amx" if amx else device_for("cpu").name.removeprefix("cpu:")


def torch_uses_amx() -> bool:
    """Whether torch's bfloat16 products may use AMX: oneDNN takes what the processor advertises."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return machine.advertises_amx() and (limit in ("", "DEFAULT", "ALL") or "AMX" in limit)
