"""How a GPU computes an operator: the class that `devices/hip/<operator>.py` derives from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hk_backend.devices.base import Arguments, Prepared
from hk_backend.devices.hip.call import KernelCall
from hk_backend.devices.hip.library import HipLibrary
from hk_backend.devices.hip.memory import Memory
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.devices.hip.workspace import Workspaces
from hk_backend.kernels import Catalogue, Family, KernelEntry
from hk_backend.terms.verdict import Verdict, refused

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


class Gpus(Protocol):
    """The parts of the hip device that operators use."""

    library: HipLibrary
    catalogue: Catalogue
    memory: Memory
    kernels: HipKernels
    workspaces: Workspaces

    def gpu(self, index: int) -> Machine:
        """The properties of GPU `index` that a launch may depend on."""

    def usable(self, operator: HipOperator, kernels: Family, index: int) -> Family | Verdict:
        """The alternatives that may run on GPU `index`, or the reason why none may."""

    def with_usable(self, operator: HipOperator, call: KernelCall, index: int) -> KernelCall:
        """The call with those of its kernels that may run on GPU `index`. Raises `DeviceError`."""

    def ready(self, operator: HipOperator, arguments: Arguments) -> KernelCall | None:
        """The launch of a call, with its usable kernels; None if there is nothing to write."""

    def index_of(self, call: KernelCall) -> int:
        """Index of the GPU that a launch runs on."""

    def launch(self, call: KernelCall, index: int) -> None:
        """Enqueues a call of one kernel on the current stream of GPU `index`."""


Usable = Callable[["HipOperator", Family], Verdict]
"""Asks whether this machine computes an operator correctly with one of these kernels."""
Way = Callable[[KernelCall, Machine], Sequence[KernelCall]]
"""Turns a call into the launches, of one or several kernels, that solve a problem."""


def as_it_is(call: KernelCall, machine: Machine) -> Sequence[KernelCall]:
    """Launches a call unchanged: the only way of most kernels."""
    return (call,)


class HipOperator:
    """An operator on a GPU. By default, a call is one launch of one kernel, and nothing is kept."""

    def verdict(self, request: Any, kernels: Catalogue, usable: Usable) -> Verdict:
        """Whether a usable kernel computes `request`; if not, one line that says why."""
        return refused(f"a GPU serves no layers of {request.operator}")

    def prepare(self, arguments: Any, kernels: Catalogue) -> KernelCall:
        """Prepares the launch for arguments that `ops` has checked.

        Raises:
            ValueError: the kernels do not compute this case. Names the argument, its value and what
                would be valid.
        """
        raise NotImplementedError

    def completed(self, call: KernelCall, machine: Machine) -> KernelCall:
        """The launch with the choices that depend on its usable kernels and its GPU."""
        return call

    def run(self, arguments: Any, gpus: Gpus) -> None:
        """Enqueues a call on torch's current stream, without waiting (`Device.run`)."""
        call = gpus.ready(self, arguments)
        if call is not None:
            gpus.launch(call, gpus.index_of(call))

    def record(
        self, arguments: Any, tensors: Sequence[torch.Tensor | None], gpus: Gpus
    ) -> Prepared | None:
        """Records the launches of a call, to repeat them (`Device.prepare`)."""
        return None

    def microseconds(
        self, request: Any, rows: int, kernels: Catalogue, compute_units: int
    ) -> float:
        """Microseconds of the launch for a layer, as timed on this machine or else as planned.

        Args:
            rows: rows of a linear layer, query tokens of one fresh prompt, or requests of a decode.

        Raises `ValueError` if no kernel serves the layer, or the request lacks a length.
        """
        raise NotImplementedError

    def self_check_problem(self, kernel: KernelEntry) -> Problem:
        """The problem that `kernel` must solve before its first use."""
        raise NotImplementedError

    def ways(self, kernel: KernelEntry, kernels: Catalogue) -> Sequence[Way]:
        """Ways to launch `kernel`, with other kernels where it needs them. It must solve the
        problem in each."""
        return (as_it_is,)
