"""Launches of the kernels that time single instructions (csrc/kernels/measure/measure.hip)."""

from __future__ import annotations

import numpy as np

from hk_backend.kernels.entry import KernelEntry
from hk_backend.lab.timing.family import ModelledFamily
from hk_backend.lab.timing.launch import Launch
from hk_backend.lab.timing.workloads import buffers
from hk_backend.lab.toolchain.clocks import WAVE

RECORD_BYTES = 24  # hk::MeasureRecord
MEMORY_BYTES = 1 << 16


def launch(entry: KernelEntry, steps: int) -> Launch:
    """Prepares one workgroup of `entry` with all of its waves, for so many steps."""
    waves = entry.block // WAVE
    arrays = {
        "records": buffers.zeros((waves * RECORD_BYTES,), np.uint8),
        "results": buffers.zeros((entry.block,), np.uint32),
        "memory": buffers.zeros((MEMORY_BYTES,), np.uint8),
    }
    numbers = {"bytes": MEMORY_BYTES, "workgroups": 1, "steps": steps, "waves": (1 << waves) - 1}
    return buffers.launch_of(entry, arrays, {**numbers, "stride": 16}, np.ones(1), [0])


FAMILY = ModelledFamily(
    launch,
    small=lambda entry: 2,
    uncompared="nobody publishes the time of single instructions",
)
