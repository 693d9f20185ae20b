"""How long one launch of a gemm kernel takes: by the timing model, or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_formats import Format
from hk_backend.kernels.tuning_fields import MODELLED
from hk_backend.timing import model
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

    `source`, `device`: as in a line of a tuning file. `at_once`: launches that may be timed at the
    same time.
    """

    arch: str
    compute_units: int
    source: str
    device: str
    at_once: int

    def microseconds(self, entry: KernelEntry, splits: int, problem: Problem) -> float:
        """In a stream, behind another launch.

        Raises:
            RuntimeError: the kernel cannot go on, or fails its self-check; the message says why.
        """

    def stock(self, problem: Problem) -> tuple[str, float] | None:
        """What the engine calls by itself, and its microseconds; None: not known here."""


class Clock:
    """The timing model: no GPU is needed."""

    source = MODELLED
    device = ""

    def __init__(self, arch: str, at_once: int) -> None:
        from hk_backend import _emulator

        self.arch = arch
        self.at_once = at_once
        self.compute_units = int(_emulator.TimingParameters(arch)["compute_units"])

    def microseconds(self, entry: KernelEntry, splits: int, problem: Problem) -> float:
        shape = gemm.Shape(problem.m, problem.n, problem.k, splits)
        traced = model.trace(gemm.launch(entry, shape), threads=1)
        return float(model.time(traced).stream_microseconds)

    def stock(self, problem: Problem) -> None:
        """Nobody's code but HK's is modelled."""
