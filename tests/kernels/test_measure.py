"""The measuring kernels execute the instructions of their rows, as often as stated, and hardly any
others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hk_backend import _emulator
from hk_backend.kernels import KernelEntry, arches, catalogue, pack_arguments
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.lab.bench.gpu import launches
from hk_backend.lab.timing.microbenchmarks import (
    ALL,
    KIB,
    ONE,
    SAME_SIMD,
    Microbenchmark,
    microbenchmarks,
)

KERNELS = [
    entry for arch in arches(MEASURING) for entry in catalogue(arch, MEASURING).families["measure"]
]
WAVE = 64


@dataclass(frozen=True)
class Outcome:
    """The results of a launch.

    Args:
        records: uint64 [workgroups, waves, 3], the clocks, begin and end; zero if not written.
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
    """Runs a launch, and asserts that the emulator finds nothing."""
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
    argument = pack_arguments(entry, **addresses, **numbers, waves=waves, stride=stride)
    report = machine.launch(
        _emulator.CodeObject.load(entry.code_object(), entry.line_tables()).kernel(entry.symbol),
        list(entry.workgroups(argument)),
        [entry.block],
        argument,
        dynamic_lds=entry.dynamic_lds,
    )
    assert not report.findings, report.findings[0].message
    return Outcome(records, results, held, report.counters)


STREAM = np.arange(256 * KIB, dtype=np.uint32)  # 1 MiB of words that all differ
LOOP = 3
"""Instructions around each step: count, compare, branch."""
GROUPS = 2
"""Groups of accesses in a step: each group is waited for once."""
ADDRESS = 2
"""Most scalar instructions for an access's place; the next step's place takes as many."""
PAIR = "mfma_beside_vector"


def kernel_of(row: Microbenchmark, arch: str = "gfx950") -> KernelEntry:
    found = catalogue(arch, MEASURING).select("measure", run=row.kernel)
    assert isinstance(found, KernelEntry)
    return found


each_row = pytest.mark.parametrize(
    ("entry", "row"),
    [
        pytest.param(entry, row, id=f"{row.name}-{entry.arch}")
        for entry in KERNELS
        for row in {row.kernel: row for row in microbenchmarks()}.values()
        if row.kernel == entry.facts["run"] and row.instruction and row.kernel != PAIR
    ],
)


def per_step(entry: KernelEntry, waves: int, stride: int = 16) -> Counter[str]:
    """Instructions that each participating wave executes in a step of the loop, by mnemonic."""
    one, three = (
        Counter(run(entry, steps, waves, stride, memory=STREAM * 0).counters.by_mnemonic)
        for steps in (1, 3)
    )
    part = waves.bit_count() if entry.block == 8 * WAVE else entry.block // WAVE
    three.subtract(one)
    assert all(count % (2 * part) == 0 for count in three.values())
    return Counter({name: count // (2 * part) for name, count in three.items() if count})


def allowed(row: Microbenchmark, repeats: int) -> int:
    """Most instructions of a step beside the measured ones."""
    if row.kernel.endswith("_latency"):
        return LOOP + repeats + 1  # a wait for each, and for the arguments
    if row.kernel.startswith("lds_"):
        return LOOP + GROUPS
    if row.kernel.startswith(("memory_", "copy_")):
        stores = repeats * (1 + ADDRESS) if row.kernel == "memory_copy" else 0
        return LOOP + GROUPS + ADDRESS * (repeats + 1) + stores
    if row.kernel.startswith("mfma_then_"):
        return LOOP + 3 * repeats  # the reader, and the wait states before it
    return LOOP


@each_row
def test_a_step_is_the_measured_thing(entry: KernelEntry, row: Microbenchmark) -> None:
    repeats = int(entry.facts["repeats"])
    executed = per_step(entry, row.waves, row.stride)
    measured = {name for name in executed if name.startswith(row.instruction)}
    assert sum(executed[name] for name in measured) == repeats
    beside = executed.total() - repeats
    assert beside <= allowed(row, repeats), executed


def test_each_kernel_has_a_row_and_each_row_a_kernel() -> None:
    assert {entry.facts["run"] for entry in KERNELS} == {row.kernel for row in microbenchmarks()}
    assert len({row.name for row in microbenchmarks()}) == len(microbenchmarks())
    assert {entry.arch for entry in KERNELS} == {"gfx942", "gfx950"}


def test_no_spills() -> None:
    assert [entry.name for entry in KERNELS if entry.spills or entry.scratch] == []


@pytest.mark.parametrize("waves", [0x01, SAME_SIMD, 0x0F, ALL])
def test_waves_that_take_no_part_write_no_record(waves: int) -> None:
    row = next(row for row in microbenchmarks() if row.name == "fma_f32_dependent")
    found = run(kernel_of(row), waves=waves, workgroups=2)
    wrote = (found.records[:, :, 0] > 0).tolist()
    assert wrote == [[bool(waves >> wave & 1) for wave in range(8)]] * 2
    assert (found.records[:, :, 1] <= found.records[:, :, 2]).all()


@pytest.mark.parametrize("kernel", ["memory_latency", "scalar_latency"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_chain_is_followed(kernel: str, arch: str) -> None:
    size, entries, steps = 64 * KIB, 128, 3
    held = launches.memory(size, entries, torch.device("cpu")).numpy().view(np.uint32)
    start = int(np.flatnonzero(held)[5]) * 4
    entry = next(e for e in KERNELS if e.facts["run"] == kernel and e.arch == arch)
    found = run(entry, steps, stride=start, memory=held)
    at = start
    for _ in range(16 * steps):
        at = int(held[at // 4])
    assert (found.results[0, :WAVE] == at).all()
