"""Parses `--shape`: the sizes of a launch, as text, for the kernels of each family.

batch=16,heads=64/8,tokens=4096,causal        attention
heads=32/8,tokens=512+64,cached=0+2000        two requests; the second has a cached prefix
heads=64/8,tokens=8192,causal,window=1024     each query sees 1024 keys
m=4096,n=4096,k=4096                          a product
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing.family import ModelledFamily, family_of
from hk_backend.lab.timing.launch import Launch
from hk_backend.lab.timing.sizes import ShapeError, items_of
from hk_backend.operators import names

__all__ = ["ShapeError", "Workload", "parse"]


@dataclass(frozen=True)
class Workload:
    """A kernel with a shape; `text` is the shape in words."""

    entry: KernelEntry
    shape: Any
    text: str

    def launch(self) -> Launch:
        """Prepares the launch. Raises `ShapeError` if its buffers do not fit the address space."""
        family = family_of(self.entry.operator)
        assert family is not None
        try:
            return family.launch_of(self.entry, self.shape)
        except (OSError, OverflowError, MemoryError) as error:
            raise ShapeError(f"{self.text}: its buffers do not fit: {error}") from None


def parse(entry: KernelEntry, text: str) -> Workload:
    """The workload of `entry` with the shape that `text` describes. Raises `ShapeError`."""
    family = family_of(entry.operator)
    if family is None or family.parse is None:
        raise ShapeError(f"{entry.name}: {entry.operator} has no shapes; valid: {_with_shapes()}")
    items = items_of(text, family.sizes)
    try:
        return Workload(entry, *family.parse(entry, items))
    except ShapeError:
        raise
    except ValueError as error:  # the shape's own class refuses its sizes
        raise ShapeError(f"{text!r}: {error}") from None


def _with_shapes() -> str:
    """The families whose kernels take a shape."""
    families: dict[str, ModelledFamily[Any]] = {}
    for name in names("lab.timing.workloads"):
        family = family_of(name)
        if family is not None and family.parse is not None:
            families[name] = family
    return ", ".join(families)
