"""What linear layers multiply by what, and the gemm kernels that do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hk_backend.kernels.catalogue import Catalogue, Family
from hk_backend.kernels.entry import KernelEntry


class Format(NamedTuple):
    """What tells kernels apart that compute different things: `a`, `b` and `scales` of their
    facts."""

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
"""By the name of a kind of layer: `fp8_channel` has scales per token and per channel, `fp8_tensor`
one of each, `fp8_block` per 128 channels and per 128x128, `fp8_weight_only` leaves activations as
they are."""


def family(kernels: Catalogue, of: Format) -> Family:
    """The kernels of a format; may be none."""
    return tuple(entry for entry in kernels.families.get("gemm", ()) if format_of(entry) == of)


def format_of(entry: KernelEntry) -> Format:
    return Format(*(str(entry.facts[name]) for name in ("a", "b", "scales")))
