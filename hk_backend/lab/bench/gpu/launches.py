"""Runs a row on a GPU: its two launches, several times, and the result of their records."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from functools import lru_cache
from statistics import median

import torch

from hk_backend.devices.hip.call import KernelCall, Work
from hk_backend.devices.hip.device import HipDevice
from hk_backend.kernels import KernelEntry
from hk_backend.lab.timing.microbenchmarks import (
    KIB,
    LINE,
    MIB,
    Microbenchmark,
    MicrobenchmarkResult,
    chain_entries,
)

LONGER = 3
"""Length of the second launch, as a multiple of the first one's."""
TICKS = 100.0
"""Ticks per microsecond of the clock that all compute units share."""


@dataclass(frozen=True)
class Gpu:
    """The GPU that runs rows: number `index` of `device`.

    On an emulated GPU, rows are as short as possible.
    """

    device: HipDevice
    index: int
    name: str
    compute_units: int
    rounds: int
    emulated: bool


@dataclass(frozen=True)
class Launched:
    """A launch that has ended.

    Args:
        records: int64 [workgroups, waves that took part, 3]; csrc/include/hk/args/measure.hpp
            defines the three values.
    """

    records: torch.Tensor
    steps: int

    @property
    def clocks(self) -> torch.Tensor:
        """Clocks of each wave's loop, averaged over workgroups."""
        return self.records[:, :, 0].double().mean(dim=0)

    @property
    def began(self) -> float:
        """Time at which the first wave began, in microseconds."""
        return float(self.records[:, :, 1].min()) / TICKS

    @property
    def ended(self) -> float:
        return float(self.records[:, :, 2].max()) / TICKS

    @property
    def span(self) -> float:
        return self.ended - self.began

    @property
    def gigahertz(self) -> float:
        loops = (self.records[:, :, 2] - self.records[:, :, 1]).sum() / TICKS
        return float(self.records[:, :, 0].sum() / loops) / 1e3


class Runner:
    """Runs one row on one GPU."""

    def __init__(self, gpu: Gpu, row: Microbenchmark, entry: KernelEntry) -> None:
        self._gpu, self._row, self._entry = gpu, row, entry
        waves = entry.block // 64
        self._waves = [w for w in range(waves) if waves < 8 or row.waves >> w & 1]
        size = min(row.memory, MIB) if gpu.emulated else row.memory
        target = gpu.device.memory.torch_device(gpu.index)
        self._memory = memory(size, chain_entries(size) if row.chain else 0, target)

    def run(self) -> MicrobenchmarkResult:
        """Run all rounds; returns the medians of their results."""
        self._round()  # loads the code object
        rounds = [self._round() for _ in range(self._gpu.rounds)]
        clocks = {w: median(one.clocks[w] for one in rounds) for w in self._waves}
        figures = (field.name for field in fields(MicrobenchmarkResult) if field.name != "clocks")
        middle = {name: median(getattr(one, name) for one in rounds) for name in figures}
        return MicrobenchmarkResult(clocks, **middle)

    def _round(self) -> MicrobenchmarkResult:
        began = time.perf_counter()
        (first,) = self._launch(1)
        waited = (time.perf_counter() - began) * 1e6
        short, long = self._launch(1, LONGER)
        repeats = (long.steps - short.steps) * int(self._entry.facts["repeats"])
        clocks = (long.clocks - short.clocks) / max(repeats, 1)
        more = max(long.steps - short.steps, self._row.many * (LONGER - 1), 1)
        return MicrobenchmarkResult(
            dict(zip(self._waves, clocks.tolist(), strict=True)),
            microseconds=(long.span - short.span) / more,
            gigahertz=long.gigahertz,
            alone=float(short.clocks.mean()),
            gap=long.began - short.ended,
            call=waited - first.span,
            workgroups=len(long.records),
        )

    def _launch(self, *times: int) -> list[Launched]:
        """Run launches one after the other, each `times` as long as the row's, and wait for all."""
        sizes = [self._sizes(each) for each in times]
        records = [self._enqueue(workgroups, steps) for workgroups, steps in sizes]
        memory = self._gpu.device.memory
        self._gpu.device.library.synchronise(memory.stream(self._gpu.index))
        return [
            Launched(record.cpu()[:, self._waves], steps)
            for record, (_, steps) in zip(records, sizes, strict=True)
        ]

    def _sizes(self, times: int) -> tuple[int, int]:
        """Numbers of workgroups and steps of a launch `times` as long as the row's."""
        row, short = self._row, self._gpu.emulated
        steps = min(row.steps, 1) if short else row.steps
        workgroups = self._gpu.compute_units if row.everywhere else 1
        if row.many:
            return workgroups * (1 if short else row.many) * times, steps
        return workgroups, steps * times

    def _enqueue(self, workgroups: int, steps: int) -> torch.Tensor:
        """Start a launch; returns its records, which it has yet to write."""
        block, row = self._entry.block, self._row
        records = self._memory.new_zeros((workgroups, block // 64, 3), dtype=torch.int64)
        results = self._memory.new_zeros((workgroups, block), dtype=torch.int32)
        tensors = {"records": records, "results": results, "memory": self._memory}
        numbers = {
            "bytes": self._memory.nbytes,
            "workgroups": workgroups,
            "steps": steps,
            "waves": row.waves,
            "stride": self._start() if row.chain else row.stride,
        }
        work = Work(workgroups, "workgroups of measurements")
        call = KernelCall((self._entry,), tensors, numbers, {"workgroups": workgroups}, work)
        self._gpu.device.launch(call, self._gpu.index)
        return records

    def _start(self) -> int:
        """A random place of the chain, since a cache may hold the places of the last launch."""
        size = self._memory.nbytes
        entries = chain_entries(size)
        place = int(torch.randint(entries, ()))
        return place * (size // entries) + place % (size // entries // LINE) * LINE


@lru_cache(maxsize=1)
def memory(size: int, entries: int, target: torch.device) -> torch.Tensor:
    """A buffer of uint8 [size] with operands of any format, or with a chain of `entries` places.

    No operand is NaN or large. A chain visits all its places in random order: each place holds the
    byte offset of the next one. The places are spread over the cache lines of equal shares of the
    buffer.
    """
    random = torch.Generator().manual_seed(0)
    if not entries:
        held = torch.zeros(size, dtype=torch.uint8, device=target)
        operands = torch.randint(256, (64 * KIB,), generator=random, dtype=torch.uint8) & 0xBF
        operands[operands == 0x80] = 0  # 0x80 is NaN in gfx942's FP8
        held[: operands.numel()] = operands[:size].to(target)
        return held
    share = size // entries
    order = torch.randperm(entries, generator=random)
    place = order * share + order % (share // LINE) * LINE
    held = torch.zeros(size // 4, dtype=torch.int32, device=target)
    held[(place // 4).to(target)] = place.roll(-1).to(target, torch.int32)
    return held.view(torch.uint8)
