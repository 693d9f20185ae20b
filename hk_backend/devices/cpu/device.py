"""The cpu device: native host kernels (`csrc/cpu`) on torch CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import torch

from hk_backend.devices.base import Arguments, DeviceError, Request
from hk_backend.devices.cpu import attention, linear
from hk_backend.devices.cpu.extension import Extension
from hk_backend.devices.cpu.isas import usable_isas, why_not
from hk_backend.devices.cpu.prepared_linear import PreparedLinear
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.verdict import SERVED, Verdict, refused

_OPERATORS: dict[str, Callable[[Extension, Any], None]] = {
    "attention_prefill": attention.prefill,
    "merge_attention": attention.merge,
    "linear": linear.linear,
    "look_up": linear.look_up,
    "pack_weight": linear.pack_weight,
    "quantize_fp8": linear.quantize_fp8,
    "quantize_mx": linear.quantize_mx,
}


class CpuDevice:
    """Host kernels of one instruction set; they implement every operator."""

    def __init__(self, isa: str) -> None:
        self.name = f"cpu:{isa}"
        self.weight_layout = isa
        self._extension = Extension(isa)
        self.linear_calls: dict[Hashable, Any] = {}

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        return linear.packed_bytes(self._extension, format, n, k)

    def is_capturing(self) -> bool:
        return False

    def verdict(self, request: Request) -> Verdict:
        if request.device_type != "cpu":
            return refused(f"tensors on {request.device_type} with the cpu device")
        return SERVED

    def run(self, arguments: Arguments) -> None:
        _OPERATORS[arguments.operator](self._extension, arguments)

    def prepare(
        self, arguments: Arguments, tensors: Sequence[torch.Tensor | None]
    ) -> PreparedLinear | None:
        """Prepares linear layers alone."""
        if not isinstance(arguments, LinearArguments) or arguments.x_scales is not None:
            return None
        kind = linear.kind_of(self._extension, arguments.weight, arguments.weight.activations)
        return PreparedLinear.of(self._extension, arguments, kind)


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
