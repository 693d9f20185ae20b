"""What a module of the hip device defines for its operator (attention.py, linear.py)."""

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
"""Whether this very machine computes what one of these kernels should (self_check.py)."""
Error = Callable[[torch.Tensor, torch.Tensor], float]
"""Of what was found, against what was expected in float64."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A small problem whose answer is known.

    Args:
        arguments: on the host; what the kernel writes holds NaN.
        expected: the answers by field of `arguments`, and how an error is measured.
        limit: the largest error that rounding explains.
    """

    arguments: Arguments
    expected: Mapping[str, tuple[torch.Tensor, Error]]
    limit: float


class Machine(Protocol):
    """What a launch may depend on besides its arguments."""

    @property
    def compute_units(self) -> int:
        """Of the GPU."""

    def workspace(self, partial_bytes: int) -> Mapping[str, torch.Tensor]:
        """Memory that the stream's launches share (workspace.py), by the struct's fields.

        Raises `DeviceError` in a capture on a stream for which there is none.
        """


Way = Callable[[KernelCall, Machine], Sequence[KernelCall]]
"""To solve a problem: the launches, of one kernel or of several."""


def as_it_is(call: KernelCall, machine: Machine) -> Sequence[KernelCall]:
    """The only way of most kernels."""
    return (call,)


class Operator(Protocol):
    """A module with these functions."""

    def verdict(self, request: Any, kernels: Catalogue, usable: Usable) -> Verdict:
        """Whether a usable kernel computes `request`; if not, one line that says why."""

    def prepare(self, arguments: Any, kernels: Catalogue) -> KernelCall:
        """The launch for arguments that `ops` has checked.

        Raises:
            ValueError: the kernels do not compute this; names the argument, its value and what
                would be valid.
        """

    def settle(self, call: KernelCall, machine: Machine) -> KernelCall:
        """The launch, once it is known which of its kernels may run, and where."""

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        """What `kernel` must solve before its first use."""

    def ways(self, kernel: KernelEntry, kernels: Catalogue) -> Sequence[Way]:
        """To launch `kernel`, with others where it takes several: it must solve the problem in
        each."""
