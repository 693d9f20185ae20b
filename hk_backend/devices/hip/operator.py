"""Interface of a module that implements an operator on the hip device (attention.py, linear.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hk_backend.devices.base import Arguments
from hk_backend.devices.hip.call import KernelCall
from hk_backend.kernels import Catalogue, Family, KernelEntry
from hk_backend.terms.verdict import Verdict

Usable = Callable[[Family], Verdict]
"""Asks whether this machine computes correctly with one of these kernels (self_check.py)."""
Error = Callable[[torch.Tensor, torch.Tensor], float]
"""Error of a found tensor against the expected one in float64."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A small problem with a known answer.

    Args:
        arguments: tensors on the host; outputs hold NaN.
        expected: for each output field of `arguments`, the answer and its measure of error.
        limit: largest error that rounding explains.
    """

    arguments: Arguments
    expected: Mapping[str, tuple[torch.Tensor, Error]]
    limit: float


class Machine(Protocol):
    """The properties of a GPU that a launch may depend on besides its arguments."""

    @property
    def compute_units(self) -> int:
        """Number of compute units of the GPU."""

    def workspace(self, partial_bytes: int) -> Mapping[str, torch.Tensor]:
        """Memory that the stream's launches share (workspace.py), by the struct's fields.

        Raises `DeviceError` during a capture on a stream that has no workspace.
        """


Way = Callable[[KernelCall, Machine], Sequence[KernelCall]]
"""Turns a call into the launches, of one or several kernels, that solve a problem."""


def as_it_is(call: KernelCall, machine: Machine) -> Sequence[KernelCall]:
    """Launches a call unchanged: the only way of most kernels."""
    return (call,)


class Operator(Protocol):
    """A module with these functions, which implements one operator."""

    def verdict(self, request: Any, kernels: Catalogue, usable: Usable) -> Verdict:
        """Whether a usable kernel computes `request`; if not, one line that says why."""

    def prepare(self, arguments: Any, kernels: Catalogue) -> KernelCall:
        """Prepares the launch for arguments that `ops` has checked.

        Raises:
            ValueError: the kernels do not compute this case. Names the argument, its value and what
                would be valid.
        """

    def settle(self, call: KernelCall, machine: Machine) -> KernelCall:
        """Completes the launch, once its usable kernels and its GPU are known."""

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        """The problem that `kernel` must solve before its first use."""

    def ways(self, kernel: KernelEntry, kernels: Catalogue) -> Sequence[Way]:
        """Ways to launch `kernel`, with other kernels where it needs them. It must solve the
        problem in each."""
