"""Micro-kernels (csrc/kernels/measure) in the emulator, every check on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, arches, catalogue, pack_arguments
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.timing.rows import KIB, ONE

KERNELS = [
    entry for arch in arches(MEASURING) for entry in catalogue(arch, MEASURING).families["measure"]
]
WAVE = 64


@dataclass(frozen=True)
class Outcome:
    """Args:
    records: uint64 [workgroups, waves, 3]: clocks, began, ended; zero where nothing was written.
    results: uint32 [workgroups, threads].
    """

    records: NDArray[np.uint64]
    results: NDArray[np.uint32]
    memory: NDArray[np.uint32]
    counters: _emulator.Counters


def run(
    entry: KernelEntry,
    steps: int = 1,
    waves: int = ONE,
    stride: int = 16,
    workgroups: int = 1,
    memory: NDArray[np.uint32] | None = None,
) -> Outcome:
    """A launch that must be free of findings."""
    held = np.zeros(64 * KIB // 4, np.uint32) if memory is None else memory.copy()
    records = np.zeros((workgroups, entry.block // WAVE, 3), np.uint64)
    results = np.zeros((workgroups, entry.block), np.uint32)
    buffers: dict[str, NDArray[Any]] = {"records": records, "results": results, "memory": held}
    machine = _emulator.Machine(entry.arch)
    addresses = {
        name: machine.map(buffer.ctypes.data, buffer.nbytes, name)
        for name, buffer in buffers.items()
    }
    numbers = {"bytes": held.nbytes, "workgroups": workgroups, "steps": steps}
    report = machine.launch(
        _emulator.CodeObject.load(entry.code_object(), entry.line_tables()).kernel(entry.symbol),
        list(entry.grid(workgroups=workgroups)),
        [entry.block],
        pack_arguments(entry, **addresses, **numbers, waves=waves, stride=stride),
        dynamic_lds=entry.dynamic_lds,
    )
    assert not report.findings, report.findings[0].message
    return Outcome(records, results, held, report.counters)
