"""The hip device: the code objects of the catalogue on an AMD GPU, through HIP's module API.

Module `devices/hip/<operator>.py` says how a GPU computes an operator (operator.py). The emulated
device (emulated.py) is the same class with another library and another memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from hk_backend.devices.base import Arguments, DeviceError, Prepared, Request
from hk_backend.devices.hip import weight_layout
from hk_backend.devices.hip.call import KernelCall, bad
from hk_backend.devices.hip.library import (
    HipError,
    HipLibrary,
    ended_by_a_capture,
    mapped_library,
)
from hk_backend.devices.hip.memory import GpuMemory, Memory
from hk_backend.devices.hip.modules import HipKernels
from hk_backend.devices.hip.operator import HipOperator, Machine
from hk_backend.devices.hip.recording import reads_tensors
from hk_backend.devices.hip.self_check import self_check
from hk_backend.devices.hip.workspace import Workspaces
from hk_backend.kernels import Catalogue, CodeObjectError, Family, KernelEntry, catalogue
from hk_backend.operators import part
from hk_backend.terms.verdict import SERVED, Verdict, refused

logger = logging.getLogger(__name__)

SelfCheck = Callable[["HipDevice", HipOperator, KernelEntry, int], Verdict]


class HipDevice:
    """GPUs of one arch behind one HIP library.

    Args:
        kind: first part of the device's name, "hip" or "emulated".
        check: self-check that a kernel must pass before its first use.
    """

    def __init__(
        self,
        library: HipLibrary,
        kernels: Catalogue,
        memory: Memory | None = None,
        *,
        kind: str = "hip",
        check: SelfCheck = self_check,
    ) -> None:
        self.name = f"{kind}:{kernels.arch}"
        self.library = library
        self.catalogue = kernels
        self.memory = GpuMemory() if memory is None else memory
        self.kernels = HipKernels(library)
        self.weight_layout = kernels.arch if weight_layout.READERS in kernels.families else ""
        self.workspaces = Workspaces(self.memory, library)
        self.prepared_calls: dict[Hashable, Any] = {}
        self._check = check
        self._verdicts: dict[tuple[str, str, int], Verdict] = {}
        """Verdicts by operator, kernel name and GPU; kernels of two operators may share a name."""

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        if not self.weight_layout or format not in weight_layout.FORMATS_OF:
            raise self._missing(f"linear ({format})")
        return weight_layout.packed_bytes(format, n, k)

    def is_capturing(self) -> bool:
        return self.library.is_capturing(self.memory.stream(self.memory.current_index()))

    def restore(self) -> None:
        self.workspaces.restore()

    def verdict(self, request: Request) -> Verdict:
        """Decides from host facts. The first request for a kernel also runs the kernel's
        self-check."""
        if request.device_type != self.memory.tensors_on:
            return refused(f"tensors on {request.device_type} with the device {self.name}")

        def usable(of: HipOperator, kernels: Family) -> Verdict:
            found = self.usable(of, kernels, self.memory.current_index())
            return found if isinstance(found, Verdict) else SERVED

        try:
            operator = self._operator(request.operator)
            return operator.verdict(request, self.catalogue, usable)
        except (DeviceError, CodeObjectError) as error:  # the operator's index is read here
            return refused(str(error))

    def verify(self, operator: HipOperator, kernel: KernelEntry, index: int) -> Verdict:
        """Whether `kernel` passes its self-check on GPU `index`. The check runs once per process.

        The check waits for the GPU. Call this where layers are constructed, not in a request.
        """
        key = kernel.operator, kernel.name, index
        known = self._verdicts.get(key)
        if known is None:
            with self.library.current(index):  # the stream may be this GPU's null stream
                if self.library.is_capturing(self.memory.stream(index)):
                    return refused(
                        f"{kernel.name}: its first use cannot be in a graph capture, call it before"
                    )
            try:
                known = self._check(self, operator, kernel, index)
            except Exception as error:  # torch raises a kernel's fault when it next waits
                known = refused(
                    f"{kernel.name} cannot run on device {index} of {self.name}: "
                    f"{type(error).__name__}: {error}"
                )
                if ended_by_a_capture(error):  # the error says nothing about the kernel
                    return known
            self._verdicts[key] = known
            if not known:
                logger.error("hk_backend: %s", known.why)
        return known

    def run(self, arguments: Arguments) -> None:
        """Enqueues the operator on torch's current stream, without waiting.

        Raises:
            ValueError: the kernels do not compute this argument; nothing was launched.
            DeviceError, HipError: there are no kernels, the launch failed, or a kernel failed its
                self-check.
        """
        self._operator(arguments.operator).run(arguments, self)

    def launch(self, call: KernelCall, index: int) -> None:
        """Enqueues a call of one kernel on the current stream of GPU `index`."""
        with self.memory.addresses(call.tensors, call.work) as addresses:
            stream = self.memory.stream(index)
            self.kernels.launch(call.kernel, index, stream, **call.values(addresses))

    def prepare(
        self, arguments: Arguments, tensors: Sequence[torch.Tensor | None]
    ) -> Prepared | None:
        if not reads_tensors:
            return None
        return self._operator(arguments.operator).record(arguments, tensors, self)

    def _operator(self, name: str) -> HipOperator:
        """The operator of this name. Raises `DeviceError` if the device has none."""
        found = part("devices.hip", name)
        if found is None:
            raise self._missing(name)
        operator: HipOperator = found.OPERATOR
        return operator

    def compute_units(self, index: int) -> int:
        """Number of compute units of GPU `index`."""
        return self.library.compute_units(index)

    def microseconds(self, request: Request, rows: int) -> float:
        """Microseconds of HK's launch for a layer, as timed on this machine or else as planned."""
        units = self.compute_units(self.memory.current_index())
        operator = self._operator(request.operator)
        return operator.microseconds(request, rows, self.catalogue, units)

    def gpu(self, index: int) -> Machine:
        """The properties of GPU `index` that a launch may depend on."""
        return OneGpu(self.library, self.memory, self.workspaces, index)

    def ready(self, operator: HipOperator, arguments: Arguments) -> KernelCall | None:
        """The launch of a call, with its usable kernels; None if there is nothing to write."""
        call = operator.prepare(arguments, self.catalogue)
        name, tensor = next(iter(call.tensors.items()))
        if tensor.device.type != self.memory.tensors_on:
            bad(name, f"a tensor on {tensor.device.type}", self.memory.tensors_on)
        if call.is_empty:
            return None
        index = self.memory.index(tensor)
        return operator.completed(self.with_usable(operator, call, index), self.gpu(index))

    def index_of(self, call: KernelCall) -> int:
        """Index of the GPU that a launch runs on."""
        return self.memory.index(next(iter(call.tensors.values())))

    def with_usable(self, operator: HipOperator, call: KernelCall, index: int) -> KernelCall:
        """The call with those of its kernels that may run on GPU `index`. Raises `DeviceError`."""
        found = self.usable(operator, call.kernels, index)
        if isinstance(found, Verdict):
            raise DeviceError(found.why)
        return replace(call, kernels=found)

    def usable(self, operator: HipOperator, kernels: Family, index: int) -> Family | Verdict:
        """The alternatives that may run on GPU `index`, or the reason why none may."""
        verdicts = [self.verify(operator, kernel, index) for kernel in kernels]
        if not any(verdicts):
            return refused("; ".join(verdict.why for verdict in verdicts))
        return tuple(kernel for kernel, verdict in zip(kernels, verdicts, strict=True) if verdict)

    def _missing(self, operator: str) -> DeviceError:
        return DeviceError(f"{self.name}: no {operator} kernels for {self.catalogue.arch} yet")


@dataclass(frozen=True)
class OneGpu:
    """Properties of GPU `index` that a launch may depend on (operator.Machine)."""

    library: HipLibrary
    memory: Memory
    workspaces: Workspaces
    index: int

    @property
    def compute_units(self) -> int:
        return self.library.compute_units(self.index)

    def workspace(self, partial_bytes: int) -> Mapping[str, torch.Tensor]:
        stream = self.memory.stream(self.index)
        return self.workspaces.of(self.index, stream, partial_bytes).tensors


@cache
def hip_device() -> HipDevice:
    """The GPUs of this machine.

    Raises:
        DeviceError: there is no HIP runtime, no GPU, or no kernels for its arch.
    """
    library = mapped_library()
    try:
        if not library.device_count():
            raise DeviceError(f"the HIP runtime {library.path} sees no GPU")
        return HipDevice(library, catalogue(library.arch(0)))
    except (HipError, CodeObjectError) as error:
        raise DeviceError(str(error)) from error
