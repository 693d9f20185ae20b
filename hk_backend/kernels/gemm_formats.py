"""Operand formats of linear layers, and the gemm kernels that multiply them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hk_backend.kernels.catalogue import Catalogue, Family
from hk_backend.kernels.entry import KernelEntry


class Format(NamedTuple):
    """Operand types of a gemm kernel: the facts `a`, `b` and `scales` of the catalogue."""

    activations: str
    weights: str
    scales: str


LAYERS: Mapping[str, Format] = {
    "bf16": Format("bf16", "bf16", "vectors"),
    "fp16": Format("f16", "f16", "vectors"),
    "fp8_channel": Format("e4m3", "e4m3", "vectors"),
    "fp8_tensor": Format("e4m3", "e4m3", "vectors"),
    "fp8_block": Format("e4m3", "e4m3", "blocks"),
    "fp8_weight_only": Format("bf16", "e4m3", "vectors"),
}
"""`Format` by kind of layer. `fp8_channel` has scales per token and per channel, `fp8_tensor` one
scale of each. `fp8_block` has scales per 128 channels and per 128x128, and `fp8_weight_only` leaves
activations unquantized."""


def family(kernels: Catalogue, of: Format) -> Family:
    """The kernels of a format; there may be none."""
    return tuple(entry for entry in kernels.families.get("gemm", ()) if format_of(entry) == of)


def format_of(entry: KernelEntry) -> Format:
    return Format(*(str(entry.facts[name]) for name in ("a", "b", "scales")))
