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

    @property
    def weights_are_mx(self) -> bool:
        """Whether weights hold packed codes, with a scale for each 32 along the depth."""
        return self.scales in ("mx", "mx_weights")

    @property
    def activations_are_mx(self) -> bool:
        """Whether activations do, too."""
        return self.scales == "mx"

    @property
    def bits(self) -> tuple[int, int]:
        """Bits of an element of the activations, and of the weights."""
        return ELEMENT_BITS[self.activations], ELEMENT_BITS[self.weights]


ELEMENT_BITS = {"bf16": 16, "f16": 16, "e4m3": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4}
"""Bits of a kernel's elements, by their names in its facts."""
MX_ELEMENTS = {"mxfp8": "e4m3", "mxfp6_e3m2": "e3m2", "mxfp6_e2m3": "e2m3", "mxfp4": "e2m1"}
"""Names of the elements of MX formats in the kernels' facts."""
LAYERS: Mapping[str, Operands] = {
    "bf16": Operands("bf16", "bf16", "vectors"),
    "fp16": Operands("f16", "f16", "vectors"),
    "fp8_channel": Operands("e4m3", "e4m3", "vectors"),
    "fp8_tensor": Operands("e4m3", "e4m3", "vectors"),
    "fp8_block": Operands("e4m3", "e4m3", "blocks"),
    "fp8_weight_only": Operands("bf16", "e4m3", "vectors"),
    "mxfp4": Operands("e2m1", "e2m1", "mx"),
    "mxfp4_mxfp6_e2m3": Operands("e2m3", "e2m1", "mx"),
    "mxfp4_mxfp6_e3m2": Operands("e3m2", "e2m1", "mx"),
    "mxfp4_mxfp8": Operands("e4m3", "e2m1", "mx"),
    "mxfp6_e2m3": Operands("e2m3", "e2m3", "mx"),
    "mxfp6_e3m2": Operands("e3m2", "e3m2", "mx"),
    "mxfp8": Operands("e4m3", "e4m3", "mx"),
    "mxfp4_weight_only": Operands("bf16", "e2m1", "mx_weights"),
    "mxfp6_e2m3_weight_only": Operands("bf16", "e2m3", "mx_weights"),
    "mxfp6_e3m2_weight_only": Operands("bf16", "e3m2", "mx_weights"),
    "mxfp8_weight_only": Operands("bf16", "e4m3", "mx_weights"),
}
"""Operands by kind of layer. `fp8_channel` has scales per token and per channel, `fp8_tensor` one
scale of each. `fp8_block` has scales per 128 channels and per 128x128, and a `weight_only` layer
leaves activations unquantized. A name of two MX formats is that of the weights, then of the
activations."""


def family(kernels: Catalogue, of: Operands) -> Family:
    """The kernels for these operands; there may be none."""
    return tuple(entry for entry in kernels.families.get("gemm", ()) if operands_of(entry) == of)


def operands_of(entry: KernelEntry) -> Operands:
    return Operands(*(str(entry.facts[name]) for name in ("a", "b", "scales")))
