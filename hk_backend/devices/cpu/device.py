"""The cpu device: native host kernels (`csrc/cpu`) on torch CPU tensors.

Module `devices/cpu/<operator>.py` runs an operator, and prepares its calls if that saves time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import torch

from hk_backend.devices.base import Arguments, DeviceError, Prepared, Request
from hk_backend.devices.cpu.extension import Extension
from hk_backend.devices.cpu.isas import usable_isas, why_not
from hk_backend.operators import part
from hk_backend.terms.verdict import SERVED, Verdict, refused


class CpuDevice:
    """Host kernels of one instruction set; they implement every operator."""

    def __init__(self, isa: str) -> None:
        self.name = f"cpu:{isa}"
        self.weight_layout = isa
        self._extension = Extension(isa)
        self.prepared_calls: dict[Hashable, Any] = {}

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        return self._extension.packed_bytes(format, n, k)

    def is_capturing(self) -> bool:
        return False

    def restore(self) -> None:
        """Does nothing: no call relies on what an earlier one has left."""

    def verdict(self, request: Request) -> Verdict:
        if request.device_type != "cpu":
            return refused(f"tensors on {request.device_type} with the cpu device")
        return SERVED

    def run(self, arguments: Arguments) -> None:
        operator = part("devices.cpu", arguments.operator)
        if operator is None:
            raise DeviceError(f"{self.name}: no {arguments.operator}")
        operator.run(self._extension, arguments)

    def prepare(
        self, arguments: Arguments, tensors: Sequence[torch.Tensor | None]
    ) -> Prepared | None:
        prepare = getattr(part("devices.cpu", arguments.operator), "prepare", None)
        prepared: Prepared | None = prepare and prepare(self._extension, arguments, tensors)
        return prepared


@cache
def cpu_device(isa: str = "") -> CpuDevice:
    """The device for `isa`, or for the fastest instruction set of this machine if `isa` is empty.

    Raises:
        DeviceError: the extension cannot be loaded, or the instruction set is not available.
    """
    try:
        available = usable_isas()
    except ImportError as error:
        raise DeviceError(
            f"the extension hk_backend._cpu cannot be loaded ({error}): reinstall hk-backend"
        ) from error
    isa = isa or available[0]
    if isa not in available:
        why, possible = why_not(isa), ", ".join(f"cpu:{name}" for name in available)
        raise DeviceError(
            f"HK_DEVICE=cpu:{isa} cannot run on this machine{f' ({why})' if why else ''}: "
            f"expected one of {possible}"
        )
    return CpuDevice(isa)
