"""Launches of a code object that is not ours: executed with every check, or timed by the clock.

    gpu = EmulatedGpu("gfx950")
    kernel = CodeObject.load(elf, elf).kernel("add_kernel")
    done = gpu.launch(kernel, [16], 256, [x, y, out, 4096], dynamic_lds=0)
    assert not done.findings

Arguments are tensors, whose storages are mapped for the launch, and plain numbers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.lab.foreign import addresses
from hk_backend.lab.foreign.addresses import AskedAddresses
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import Launch, Traced

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.lab.timing.model import Modelled

PAIRS = 10
"""Number of pairs of neighbouring workgroups that are traced in a launch of unknown work."""


@dataclass(frozen=True)
class Sampled:
    """Work of each workgroup of a launch, and the workgroups to trace (see `timing.launch`)."""

    work: NDArray[np.float64]
    samples: Sequence[int]
    flops: float = 0.0
    bytes: float = 0.0


def evenly(workgroups: int) -> Sampled:
    """Pairs of neighbours, spread evenly over a grid of which nothing is known.

    Between them time is linear in the workgroup's number. Neighbours usually share operands, which
    the second one then finds in the L2 cache.
    """
    work = (np.arange(workgroups) // 2 * 2).astype(np.float64)
    firsts = np.linspace(0, max(workgroups - 2, 0), min(PAIRS, -(-workgroups // 2)))
    even = (firsts.round().astype(int) // 2 * 2).tolist()
    samples = {number for first in even for number in (first, first + 1) if number < workgroups}
    return Sampled(work, sorted(samples))


@dataclass(frozen=True)
class Ran:
    """A launch that was executed, or timed; a timed one has no findings."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    findings: Sequence[_emulator.Finding] = ()
    counters: _emulator.Counters | None = None
    modelled: Modelled | None = None


@dataclass
class EmulatedGpu:
    """A GPU that executes kernels on the CPU's tensors.

    Args:
        arch: gfx942 or gfx950.
        seed: seed for the order of waves and workgroups; 0: workgroups in their order.
        asked: tensors that a tensor of addresses may name; those are mapped, too.
        max_findings: number of findings of a launch that are kept.
    """

    arch: str
    seed: int = 1
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    asked: AskedAddresses = field(default_factory=AskedAddresses)
    max_findings: int = 20
    machine: _emulator.Machine = field(init=False)

    def __post_init__(self) -> None:
        from hk_backend import _emulator

        self.machine = _emulator.Machine(self.arch)

    def launch(
        self,
        kernel: _emulator.Kernel,
        grid: Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        dynamic_lds: int = 0,
    ) -> Ran:
        """Execute a kernel with every check on.

        Args:
            grid: number of workgroups in one to three dimensions.
            block: number of work-items of a workgroup, in one to three dimensions.
            arguments: one for each declared argument: tensor, int, float, None, or bytes.

        Raises `ValueError` for an argument that does not fit, and for a kernel that needs what the
        emulator lacks.
        """
        sizes = _sizes(block)
        with self._mapped(arguments) as values:
            report = self.machine.launch(
                kernel,
                list(grid),
                sizes,
                values,
                dynamic_lds=dynamic_lds,
                seed=self.seed,
                threads=self.threads,
                max_findings=self.max_findings,
            )
        return Ran(kernel.name, tuple(grid), tuple(sizes), report.findings, report.counters)

    def time(
        self,
        kernel: _emulator.Kernel,
        grid: Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        dynamic_lds: int = 0,
        sampled: Sampled | None = None,
    ) -> Ran:
        """Model how long a kernel takes; only the traced workgroups are executed.

        Args:
            sampled: the launch's work, if it is known; otherwise the grid is sampled evenly.

        Raises `ValueError` as `launch` does, and `RuntimeError` if a traced workgroup cannot run to
        its end.
        """
        traced = self.trace(kernel, grid, block, arguments, dynamic_lds, sampled)
        sizes = tuple(_sizes(block))
        return Ran(kernel.name, tuple(grid), sizes, modelled=model.time(traced))

    def trace(
        self,
        kernel: _emulator.Kernel,
        grid: Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        dynamic_lds: int = 0,
        sampled: Sampled | None = None,
    ) -> Traced:
        """Execute a sample of the workgroups without checks, to be replayed by the timing model.

        Arguments and errors are those of `time`.
        """
        sizes = _sizes(block)
        chosen = sampled or evenly(math.prod(grid))
        with self._mapped(arguments) as values:
            recorded = self.machine.trace(
                kernel,
                list(grid),
                sizes,
                values,
                workgroups=list(chosen.samples),
                dynamic_lds=dynamic_lds,
                threads=self.threads,
            )
        launch = Launch(
            machine=self.machine,
            kernel=kernel,
            grid=list(grid),
            block=math.prod(sizes),
            arguments=b"",  # the replay does not read them
            dynamic_lds=dynamic_lds,
            work=chosen.work,
            samples=chosen.samples,
            flops=chosen.flops,
            bytes=chosen.bytes,
        )
        return Traced(launch, recorded)

    @contextmanager
    def _mapped(self, arguments: Sequence[Any]) -> Iterator[list[Any]]:
        """The arguments with addresses in place of tensors; the memory is mapped meanwhile."""
        mapped = _Mapped(self.machine, self.asked)
        try:
            yield [mapped.value(number, given) for number, given in enumerate(arguments)]
        finally:
            mapped.release()


class _Mapped:
    """The memory that one launch reaches.

    A table of addresses is copied, with the addresses at which the machine has mapped the memory.
    """

    def __init__(self, machine: _emulator.Machine, asked: AskedAddresses) -> None:
        self._machine, self._asked = machine, asked
        self._regions: dict[int, int] = {}
        self._tables: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def value(self, number: int, given: Any) -> Any:
        """The value of argument `number` in the machine: an address in place of a tensor."""
        if not isinstance(given, torch.Tensor):
            return given
        tensor = self._translated(number, given) if addresses.is_table(given) else given
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return 0
        begin = storage.data_ptr()
        region = self._region(begin, storage.nbytes(), f"argument {number}")
        return region + tensor.data_ptr() - begin

    def release(self) -> None:
        """Unmap everything. What the kernel has written to a copied table is copied back."""
        for region in self._regions.values():
            self._machine.unmap(region)
        for given, before, after in self._tables:
            written = before != after
            given.view(torch.int64)[written] = after[written]

    def _region(self, begin: int, size: int, name: str) -> int:
        if begin not in self._regions:
            self._regions[begin] = self._machine.map(begin, size, name)
        return self._regions[begin]

    def _translated(self, number: int, table: torch.Tensor) -> torch.Tensor:
        given = table.view(torch.int64).tolist()
        words = torch.tensor([self._address(number, word) for word in given], dtype=torch.int64)
        self._tables.append((table, words.clone(), words))
        return words

    def _address(self, number: int, host: int) -> int:
        """The mapped address of a word in a table; a word that is no address stays as it is."""
        found = self._asked.find(host)
        if found is None:
            return host
        begin, size = found
        region = self._region(begin, size, f"memory that argument {number} points to")
        return region + host - begin


def _sizes(block: int | Sequence[int]) -> list[int]:
    return [block] if isinstance(block, int) else list(block)
