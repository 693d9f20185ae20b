"""A kind of layer, shared by all layers that are equally fast."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of layer in one engine.

    Attributes:
        operator: the route, "linear" or "attention".
        engine: "vLLM" or "SGLang".
        device: name of HK's device, for example "cpu:avx512" or "hip:gfx950".
        layer: readable text of everything else that decides the speed: "bf16 6144x4096 from
            bfloat16", "bfloat16, 32/8 heads of 128, causal".
        theirs: the engine's own way to compute it: "UnquantizedLinearMethod", "CPU_ATTN".
    """

    operator: str
    engine: str
    device: str
    layer: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.operator} {self.layer}"
