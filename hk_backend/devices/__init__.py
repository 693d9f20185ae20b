"""Who executes an operator: the cpu device here, emulated and hip devices in time."""

from __future__ import annotations

from hk_backend.config import get_config
from hk_backend.devices.base import Device, DeviceError

__all__ = ["Device", "DeviceError", "device_for"]


def device_for(tensor_device: str) -> Device:
    """The device that executes operators on tensors of torch device type `tensor_device`.

    Raises:
        DeviceError: `HK_DEVICE` names a device that this build or machine does not have.
    """
    wanted = get_config().device
    if wanted.startswith("cpu") or (wanted == "auto" and tensor_device == "cpu"):
        from hk_backend.devices.cpu import cpu_device

        return cpu_device(wanted.partition(":")[2])
    if wanted == "auto":
        raise DeviceError(f"this build has no kernels for tensors on {tensor_device}, only on cpu")
    raise DeviceError(f"HK_DEVICE={wanted} is not available in this build: expected cpu or auto")
