"""A launch that the command line describes: executed and timed, and what there is to say of it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from hk_backend.lab.foreign import arguments, report
from hk_backend.lab.foreign.launch import EmulatedGpu, Ran, evenly
from hk_backend.lab.foreign.object_file import ObjectFile
from hk_backend.lab.foreign.timed import Timed, timed

if TYPE_CHECKING:
    from hk_backend import _emulator


@dataclass(frozen=True)
class ObjectLaunch:
    """A kernel of a file, and all that the command line says of its launch.

    Attributes:
        texts: the arguments as the user wrote them.
        threads: number of workgroups that run at once; 0: one for each processor.
    """

    file: ObjectFile
    kernel: _emulator.Kernel
    grid: Sequence[int]
    block: Sequence[int]
    texts: Sequence[str]
    dynamic_lds: int = 0
    seed: int = 1
    threads: int = 0

    @cached_property
    def gpu(self) -> EmulatedGpu:
        return EmulatedGpu(self.kernel.arch, self.seed, self.threads or os.cpu_count() or 1)

    def values(self) -> list[Any]:
        """The arguments, with new tensors that are the same each time. Raises `ArgumentError`."""
        return arguments.values(self.kernel, self.texts, self.seed)

    def execute(self, values: Sequence[Any]) -> Ran:
        """Execute every workgroup, with all checks on.

        Raises `ValueError` for a kernel or a launch that needs what the emulator lacks.
        """
        return self.gpu.launch(self.kernel, self.grid, self.block, values, self.dynamic_lds)

    def time(self, ran: Ran | None) -> tuple[Timed | None, str]:
        """Model the launch, on tensors that no run has changed.

        A launch with findings may have no time; then the reason is returned in its place.

        Args:
            ran: the executed launch, which knows the FLOPs.

        Raises `ValueError` as `execute` does, and `RuntimeError` if a traced workgroup cannot run
        to its end although there are no findings.
        """
        flops = float(ran.counters.matrix_flops) if ran and ran.counters else 0.0
        sampled = replace(evenly(math.prod(self.grid)), flops=flops)
        given = (self.kernel, self.grid, self.block, self.values(), self.dynamic_lds)
        try:
            return timed(self.gpu.trace(*given, sampled)), ""
        except RuntimeError as error:
            if ran and ran.findings:
                return None, str(error)
            raise


@dataclass(frozen=True)
class ObjectRun:
    """The results of a launch. None: the user did not ask for it.

    Attributes:
        untimed: the reason why a launch with findings has no time.
    """

    launch: ObjectLaunch
    ran: Ran | None
    took: Timed | None
    untimed: str
    saved: Sequence[Path]

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        launch, kernel, ran = self.launch, self.launch.kernel, self.ran
        counters = ran.counters if ran else None
        return {
            "file": str(launch.file.path),
            "kernel": report.plain_kernel(kernel),
            "grid": list(launch.grid),
            "block": list(launch.block),
            "values": list(launch.texts),
            "dynamic_lds": launch.dynamic_lds,
            "seed": launch.seed,
            "note": launch.file.note,
            "findings": [report.plain_finding(found) for found in ran.findings] if ran else None,
            "counters": report.plain_counters(counters, kernel.lines) if counters else None,
            "saved": [str(path) for path in self.saved],
            "time": self.took.as_json() if self.took else None,
            "untimed": self.untimed,
        }

    def print(self, console: Console) -> None:
        """Print it for people."""
        launch, kernel = self.launch, self.launch.kernel
        grid, block = (" x ".join(map(str, sizes)) for sizes in (launch.grid, launch.block))
        title = f"{kernel.name} on {kernel.arch}, grid {grid}, block {block}"
        console.print(Text(title, "bold"), soft_wrap=True)
        if launch.file.note:
            console.print(Text(f"no source lines: {launch.file.note}", "yellow"), soft_wrap=True)
        if self.ran:
            report.print_findings(console, self.ran.findings)
            console.print()
            if self.ran.counters:
                report.print_counters(console, self.ran.counters, kernel.lines)
                console.print()
        if self.took:
            self.took.print(console)
        if self.untimed:
            console.print(Text(f"not timed: {self.untimed}", "yellow"), soft_wrap=True)
        for path in self.saved:
            console.print(Text(f"saved: {path}"), soft_wrap=True)
