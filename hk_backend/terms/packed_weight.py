"""`PackedWeight`: a weight in the form that a device's kernels read and operator schemas carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend.terms.weight_format import ACTIVATIONS, FORMATS, Format

HOST_LAYOUTS = ("portable", "avx2", "avx512", "avx512_bf16", "amx")
LAYOUTS = (*HOST_LAYOUTS, "gfx950")
"""Layouts of packed weights, each named for its kind of device, which reads only its own."""

SCHEMA = "Tensor data, Tensor? factors, Tensor? block_scales, Tensor? input_scale, int[] weight"
"""Schema text of a packed weight among the arguments of a registered operator."""
FLAT_VALUES = 5
"""Number of arguments in `SCHEMA`."""
TENSORS = ("data", "factors", "block_scales", "input_scale")
"""Names of the tensor fields of `PackedWeight`, in the order of `SCHEMA`."""
FlatWeight = Sequence[Any]
"""The arguments of `SCHEMA`: four tensors or None, and the ints."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """A weight `[n, k]` that a device has packed: a few tensors and ints, to register in a module.

    Args:
        data: uint8 `[bytes]`, the codes, and the scales of mx formats.
        factors: float32 `[n]`, factor of each column of `x @ codes.T`; None: all are 1. It is NaN
            where the weight's row holds a NaN code, which `data` holds as zero.
        block_scales: float32 `[ceil(n / 128), ceil(k / 128)]`, or None.
        input_scale: float32 `[1]`, the static scale of the activations, or None.
        layout: the instruction set, or the GPU's arch, that the weight is packed for.
        rotation: neighbours along K of x that are rotated together first; 0: none.
    """

    data: torch.Tensor
    factors: torch.Tensor | None
    block_scales: torch.Tensor | None
    input_scale: torch.Tensor | None
    format: str
    n: int
    k: int
    activations: str
    layout: str
    rotation: int = 0

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that are not None, by field."""
        named = ((name, getattr(self, name)) for name in TENSORS)
        return {name: tensor for name, tensor in named if tensor is not None}

    def as_ints(self) -> list[int]:
        """All other fields as ints, which the registered operator takes."""
        return [
            _FORMAT_NAMES.index(self.format),
            self.n,
            self.k,
            ACTIVATIONS.index(self.activations),
            self.rotation,
            LAYOUTS.index(self.layout),
        ]

    def flat(self) -> list[Any]:
        """Tensors and ints in the order of `SCHEMA`."""
        return [self.data, self.factors, self.block_scales, self.input_scale, self.as_ints()]

    @classmethod
    def from_flat(cls, flat: Sequence[Any]) -> PackedWeight:
        """Rebuilds the weight from the result of `flat`."""
        data, factors, block_scales, input_scale, ints = flat
        format, n, k, activations, rotation, layout = ints
        return cls(
            data,
            factors,
            block_scales,
            input_scale,
            _FORMAT_NAMES[format],
            n,
            k,
            ACTIVATIONS[activations],
            LAYOUTS[layout],
            rotation,
        )

    @classmethod
    def from_parts(cls, tensors: Mapping[str, torch.Tensor], ints: Sequence[int]) -> PackedWeight:
        """Rebuilds the weight from the results of `tensors` and `as_ints`."""
        return cls.from_flat([*(tensors.get(name) for name in TENSORS), ints])

    @property
    def x_format(self) -> Format | None:
        """The format that x is rounded to; None: x is not rounded."""
        return FORMATS[self.format].of_activations(self.activations)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors().values())


_FORMAT_NAMES = tuple(FORMATS)
