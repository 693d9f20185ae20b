"""A launch: its kernel, and everything that its argument struct needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import torch

from hk_backend.kernels import Family


class Work(NamedTuple):
    """How much a launch does, for progress."""

    amount: int
    unit: str


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch.

    Args:
        kernels: one, or alternatives that the launch chooses from (`Catalogue.alternatives`).
        tensors: whose addresses the struct holds, by field. A pointer that is not here is null.
        numbers: the struct's other fields.
        sizes: what the grids' formulas name.
    """

    kernels: Family
    tensors: Mapping[str, torch.Tensor]
    numbers: Mapping[str, float]
    sizes: Mapping[str, int]
    work: Work

    @property
    def is_empty(self) -> bool:
        """A size of zero: there is nothing to write."""
        return min(self.sizes.values()) < 1

    def values(self, addresses: Mapping[str, int]) -> dict[str, float | None]:
        """A value for each field of the struct; tensors without an element have no address."""
        pointers = self.kernels[0].arguments.pointers
        return {**dict.fromkeys(pointers), **addresses, **self.numbers}


def bad(argument: str, found: object, expected: object) -> NoReturn:
    """Refuse an argument that is valid, but not on this device."""
    raise ValueError(f"{argument}: {found} is not valid on this device: expected {expected}")
