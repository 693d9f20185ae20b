"""Timers of one launch of a gemm kernel, by the timing model or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_operands import Operands
from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import trace
from hk_backend.lab.timing.workloads import gemm
from hk_backend.terms.measurements import MODELLED, Source


@dataclass(frozen=True)
class Problem:
    """A multiply of rows [m, k] with a weight [n, k], both in `format`."""

    format: Operands
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.format.activations} x {self.format.weights} {self.m}x{self.n}x{self.k}"


class Timer(Protocol):
    """A timer of launches.

    `name`: name of HK's device. `source`: measured or modelled. `device`: the driver's name of the
    GPU; empty if it is modelled. `at_once`: number of launches that may be timed at the same time.
    """

    arch: str
    name: str
    compute_units: int
    source: Source
    device: str
    at_once: int

    def microseconds(self, entry: KernelEntry, splits: int, problem: Problem) -> float:
        """Microseconds of a launch in a stream, after another launch.

        Raises:
            RuntimeError: the kernel cannot run to its end or fails its self-check; says why.
        """


class Clock:
    """The timing model as a timer; it needs no GPU."""

    source: Source = MODELLED
    device = ""

    def __init__(self, arch: str, at_once: int) -> None:
        from hk_backend import _emulator

        self.arch, self.name = arch, f"emulated:{arch}"
        self.at_once = at_once
        self.compute_units = int(_emulator.TimingParameters(arch)["compute_units"])

    def microseconds(self, entry: KernelEntry, splits: int, problem: Problem) -> float:
        shape = gemm.Shape(problem.m, problem.n, problem.k, splits)
        traced = trace(gemm.launch(entry, shape), threads=1)
        return float(model.time(traced).stream_microseconds)
