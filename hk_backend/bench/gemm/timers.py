"""How long one launch of a gemm kernel takes: by the timing model, or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_formats import Format
from hk_backend.terms.measurements import MODELLED, Source
from hk_backend.timing import model
from hk_backend.timing.launch import trace
from hk_backend.timing.workloads import gemm


@dataclass(frozen=True)
class Problem:
    """Rows [m, k] of a format times a weight [n, k] of it."""

    format: Format
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.format.activations} x {self.format.weights} {self.m}x{self.n}x{self.k}"


class Timer(Protocol):
    """Who says how long a launch takes.

    `name`: of HK's device. `source`: measured, or modelled. `device`: the GPU's name by its driver;
    empty if it is modelled. `at_once`: launches that may be timed at the same time.
    """

    arch: str
    name: str
    compute_units: int
    source: Source
    device: str
    at_once: int

    def microseconds(self, entry: KernelEntry, splits: int, problem: Problem) -> float:
        """In a stream, behind another launch.

        Raises:
            RuntimeError: the kernel cannot go on, or fails its self-check; the message says why.
        """


class Clock:
    """The timing model: no GPU is needed."""

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
