"""Who executes an operator: the cpu device here, emulated and hip devices in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from hk_backend.config import get_config
from hk_backend.routing import Verdict

if TYPE_CHECKING:
    from hk_backend.ops.attention_envelope import AttentionRequest


class Device(Protocol):
    """What a device offers to the operators above it."""

    name: str

    def supports(self, request: AttentionRequest) -> Verdict:
        """Whether this device serves a request that the operator's own envelope admits."""

    def attention_prefill(self, *args: Any) -> None:
        """`hk_backend::attention_prefill`, argument by argument."""

    def merge_attention(self, *args: Any) -> None:
        """`hk_backend::merge_attention`, argument by argument."""


class DeviceError(RuntimeError):
    """The configured device cannot run here; the message says why and what would help."""


def device_for(tensor_device: str) -> Device:
    """The device that executes operators on tensors of torch device type `tensor_device`.

    Raises:
        DeviceError: `HK_DEVICE` names a device that this build or machine does not have.
    """
    wanted = get_config().device
    if wanted == "auto":
        wanted = "cpu" if tensor_device == "cpu" else "hip"
    if wanted.startswith("cpu"):
        from hk_backend.devices.cpu import cpu_device

        return cpu_device(wanted.partition(":")[2])
    raise DeviceError(f"HK_DEVICE={wanted} is not available in this build: expected cpu or auto")
