"""Devices that execute an operator: host kernels, an AMD GPU, or the emulator of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hk_backend.config import get_config
from hk_backend.devices.base import Device, DeviceError
from hk_backend.devices.cpu.device import cpu_device
from hk_backend.terms.verdict import Verdict, refused

__all__ = ["Device", "DeviceError", "always", "device_for", "verdict_of_device"]

_always: Device | None = None
_AUTO = {"cpu": "cpu", "cuda": "hip"}
"""Device by torch device type; ROCm's torch says cuda."""


def verdict_of_device(tensor_device: str, asked: Callable[[Device], Verdict]) -> Verdict:
    """Answer of the device for such tensors to `asked`, or a refusal if there is no device."""
    try:
        device = device_for(tensor_device)
    except DeviceError as error:
        return refused(str(error))
    return asked(device)


def device_for(tensor_device: str) -> Device:
    """The device that executes operators on tensors of torch device type `tensor_device`.

    Raises:
        DeviceError: `HK_DEVICE`, or the kind of tensor, asks for a device that this build or
            machine does not have.
    """
    if _always is not None:
        return _always
    configured = get_config().device
    wanted: str = configured
    if wanted == "auto":
        wanted = _AUTO.get(tensor_device, "")
    kind, _, variant = wanted.partition(":")
    if kind == "cpu":
        return cpu_device(variant)
    if kind == "emulated":
        from hk_backend.devices.hip.emulated import emulated_device

        return emulated_device(variant)
    if kind == "hip":
        from hk_backend.devices.hip.device import hip_device

        try:
            return hip_device()
        except DeviceError as error:
            asked = "HK_DEVICE=hip" if configured == "hip" else f"tensors on {tensor_device}"
            raise DeviceError(f"{asked}: {error}") from None
    raise DeviceError(f"no device for tensors on {tensor_device}: expected cpu, or cuda on ROCm")


@contextmanager
def always(device: Device) -> Iterator[None]:
    """Makes `device` serve all tensors, whatever is configured, for measurements."""
    global _always  # noqa: PLW0603
    before, _always = _always, device
    try:
        yield
    finally:
        _always = before
