"""One launch: its kernel, and everything that its argument struct needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import torch

from hk_backend.kernels import Family, KernelEntry


class Work(NamedTuple):
    """Amount of work that a launch does, to report progress."""

    amount: int
    unit: str


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch.

    Args:
        kernels: candidates, the largest tile first (`Catalogue.alternatives`); one for a launch.
        tensors: tensors by the struct's pointer fields. A pointer without a tensor is null.
        numbers: values of the struct's other fields.
        sizes: those of `numbers` that say how much there is to compute.
    """

    kernels: Family
    tensors: Mapping[str, torch.Tensor]
    numbers: Mapping[str, float]
    sizes: Mapping[str, int]
    work: Work

    @property
    def kernel(self) -> KernelEntry:
        """The kernel to launch, once it has been chosen."""
        (kernel,) = self.kernels
        return kernel

    @property
    def is_empty(self) -> bool:
        """Whether a size is zero, so that there is nothing to write."""
        return min(self.sizes.values()) < 1

    def values(self, addresses: Mapping[str, int]) -> dict[str, float | None]:
        """A value for each field of the struct; tensors without elements have no address."""
        pointers = self.kernels[0].arguments.pointers
        return {**dict.fromkeys(pointers), **addresses, **self.numbers}


def bad(argument: str, found: object, expected: object) -> NoReturn:
    """Refuses an argument that is valid in general, but not on this device."""
    raise ValueError(f"{argument}: {found} is not valid on this device: expected {expected}")
