"""The error of kernels that only move memory (csrc/kernels/measure/traffic.hip)."""

from __future__ import annotations

from typing import Any

from hk_backend.lab.timing.calibration import MEMORY
from hk_backend.lab.timing.family import ModelledFamily

FAMILY: ModelledFamily[Any] = ModelledFamily(error=MEMORY)
