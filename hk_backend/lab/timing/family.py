"""Models of families of kernels for the clock and the analysis: `workloads/<family>.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing.launch import Launch
from hk_backend.operators import part

Shape = TypeVar("Shape")


def _first(alternatives: Family, shape: Shape, compute_units: int) -> tuple[KernelEntry, Shape]:
    return alternatives[0], shape


@dataclass(frozen=True)
class ModelledFamily(Generic[Shape]):
    """The launches of a family's kernels, by their shape.

    Args:
        launch: prepares a launch of a kernel on a shape.
        small: the smallest shape that keeps a workgroup of the kernel busy. The analysis runs it.
        sizes: names of the sizes that `--shape` takes.
        parse: shape of these sizes, and the same in words. Raises `ValueError`.
        shapes: shapes, by name, that the catalogue has modelled figures of a kernel for. The first
            one represents the kernel in places that show only one.
        serving: the kernel that a planner chooses for a shape among alternatives, and the shape
            with the planner's choices.
        error: root mean square of the model's relative errors over published figures.
        uncompared: reason why the family has no error.
    """

    launch: Callable[[KernelEntry, Shape], Launch] | None = None
    small: Callable[[KernelEntry], Shape] | None = None
    sizes: Sequence[str] = ()
    parse: Callable[[KernelEntry, Mapping[str, str]], tuple[Shape, str]] | None = None
    shapes: Callable[[KernelEntry], Mapping[str, Shape]] = lambda entry: {}
    serving: Callable[[Family, Shape, int], tuple[KernelEntry, Shape]] = _first
    error: float | None = None
    uncompared: str = ""

    def launch_of(self, entry: KernelEntry, shape: Shape) -> Launch:
        """The launch of a kernel on a shape. Raises `ValueError` if the family has no launches."""
        if self.launch is None:
            raise ValueError(f"{entry.operator} kernels have no modelled launches")
        return self.launch(entry, shape)


def family_of(operator: str) -> ModelledFamily[Any] | None:
    """The family of this name (`KernelEntry.operator`); None if nothing models it."""
    module = part("lab.timing.workloads", operator)
    return getattr(module, "FAMILY", None)


def serving(alternatives: Family, shape: Any, compute_units: int) -> tuple[KernelEntry, Launch]:
    """The kernel that serves the shape, and its launch.

    The planner chooses among `alternatives`, the kernels that compute the same.
    """
    family = family_of(alternatives[0].operator)
    assert family is not None
    entry, planned = family.serving(alternatives, shape, compute_units)
    return entry, family.launch_of(entry, planned)
