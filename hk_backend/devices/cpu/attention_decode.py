"""`attention_decode` on the cpu device, whose kernels are those of prefill."""

from __future__ import annotations

from hk_backend.devices.cpu.attention_prefill import prepare, run

__all__ = ["prepare", "run"]
