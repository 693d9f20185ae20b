"""What a device is to the operators above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from hk_backend.routing import Verdict

if TYPE_CHECKING:
    from hk_backend.ops.attention_envelope import AttentionRequest


class Device(Protocol):
    """Executes operators; one instance per process and kind."""

    name: str

    def supports(self, request: AttentionRequest) -> Verdict:
        """Whether this device serves a request that the operator's own envelope admits."""

    def attention_prefill(self, *args: Any) -> None:
        """`hk_backend::attention_prefill`, argument by argument."""

    def merge_attention(self, *args: Any) -> None:
        """`hk_backend::merge_attention`, argument by argument."""


class DeviceError(RuntimeError):
    """The configured device cannot run here; the message says why and what would help."""
