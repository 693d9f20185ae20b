"""The rows of micro-kernels on the timing model, as if it were the GPU that is measured."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, NoKernel, catalogue, pack_arguments
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.timing.rows import KIB, Found, Row, chain_entries, rows
from hk_backend.timing.workloads.buffers import zeros
from tests.emulator.assembly import text_of

CLOCK = 2.4  # GHz
STEPS, LONGER = 8, 3  # of the short launch; as many times in the long one
EVERYTHING = (0, 1 << 40)  # clocks
ROWS = {row.name: row for row in rows()}


@functools.cache
def kernel_of(name: str, arch: str) -> KernelEntry | None:
    found = catalogue(arch, MEASURING).select("measure", run=name)
    return None if isinstance(found, NoKernel) else found


@functools.cache
def clock_reads(entry: KernelEntry) -> frozenset[int]:
    """Where the kernel reads the clock, in .text."""
    text = _emulator.disassemble(text_of(entry.code_object()), entry.arch)
    return frozenset(pc for pc, instruction in text if instruction.startswith("s_memtime"))


def chain(size: int) -> NDArray[np.uint32]:
    """A chain through `size` bytes in order."""
    held = zeros((size // 4,), np.uint32)
    share = size // chain_entries(size)
    held[:: share // 4] = np.roll(np.arange(0, size, share, dtype=np.uint32), -1)
    return held


@functools.cache
def traced(row: Row, arch: str, steps: int, workgroups: int) -> _emulator.Trace:
    entry = kernel_of(row.kernel, arch)
    assert entry is not None
    memory = chain(row.memory) if row.chain else zeros((max(row.memory, 64 * KIB) // 4,), np.uint32)
    buffers: dict[str, NDArray[Any]] = {
        "records": zeros((workgroups, entry.block // 64, 3), np.uint64),
        "results": zeros((workgroups, entry.block), np.uint32),
        "memory": memory,
    }
    machine = _emulator.Machine(arch)
    at = {name: machine.map(b.ctypes.data, b.nbytes, name) for name, b in buffers.items()}
    numbers = {"bytes": row.memory, "workgroups": workgroups, "steps": steps}
    arguments = pack_arguments(
        entry, **at, **numbers, waves=row.waves, stride=0 if row.chain else row.stride
    )
    code = _emulator.CodeObject.load(entry.code_object()).kernel(entry.symbol)
    return machine.trace(
        code, [workgroups], [entry.block], arguments, workgroups=range(workgroups),
        dynamic_lds=entry.dynamic_lds,
    )  # fmt: skip


def loop_clocks(
    row: Row, arch: str, steps: int, changes: Mapping[str, float], workgroups: int, active: int
) -> dict[int, int]:
    """Between the reads of the clock, by wave: of the first workgroup, alone on its CU."""
    trace = traced(row, arch, steps, workgroups)
    parameters = _emulator.TimingParameters(arch, dict(changes))
    time = _emulator.replay(trace, parameters, [[0]], [0], active, CLOCK, events_within=EVERYTHING)
    entry = kernel_of(row.kernel, arch)
    assert entry is not None
    reads: defaultdict[int, list[int]] = defaultdict(list)
    for event in _emulator.wave_events(trace, time):
        if event["pc"] in clock_reads(entry) and not event["waits"]:
            reads[event["wave"]].append(int(event["start"]))
    assert all(len(at) == 2 for at in reads.values())
    return {wave: max(at) - min(at) for wave, at in sorted(reads.items())}


def found(
    row: Row,
    arch: str = "gfx950",
    changes: Mapping[str, float] | None = None,
    workgroups: int = 1,
    active: int = 1,
) -> Found:
    """What the row would find, on one CU of `active` that share the memory."""
    entry = kernel_of(row.kernel, arch)
    assert entry is not None
    first, last = STEPS, LONGER * STEPS
    short, long = (
        loop_clocks(row, arch, steps, changes or {}, workgroups, active) for steps in (first, last)
    )
    repeats = (last - first) * int(entry.facts["repeats"])
    clocks = {wave: (long[wave] - short[wave]) / repeats for wave in short}
    step = max(clocks.values()) * int(entry.facts["repeats"])
    us = step / CLOCK / 1e3
    return Found(clocks, us, CLOCK, float(np.mean(list(short.values()))), 0.0, 0.0, active)
