"""Operand types of linear layers, and the gemm kernels that multiply them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hk_backend.kernels.catalogue import Catalogue, Family
from hk_backend.kernels.entry import KernelEntry


class Operands(NamedTuple):
    """Operand types of a gemm kernel: the facts `a`, `b` and `scales` of the catalogue."""

    activations: str
    weights: str
    scales: str


LAYERS: Mapping[str, Operands] = {
    "bf16": Operands("bf16", "bf16", "vectors"),
    "fp16": Operands("f16", "f16", "vectors"),
    "fp8_channel": Operands("e4m3", "e4m3", "vectors"),
    "fp8_tensor": Operands("e4m3", "e4m3", "vectors"),
    "fp8_block": Operands("e4m3", "e4m3", "blocks"),
    "fp8_weight_only": Operands("bf16", "e4m3", "vectors"),
}
"""Operands by kind of layer. `fp8_channel` has scales per token and per channel, `fp8_tensor` one
scale of each. `fp8_block` has scales per 128 channels and per 128x128, and `fp8_weight_only` leaves
activations unquantized."""


def family(kernels: Catalogue, of: Operands) -> Family:
    """The kernels for these operands; there may be none."""
    return tuple(entry for entry in kernels.families.get("gemm", ()) if operands_of(entry) == of)


def operands_of(entry: KernelEntry) -> Operands:
    return Operands(*(str(entry.facts[name]) for name in ("a", "b", "scales")))
