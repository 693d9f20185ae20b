"""Explains which kernel serves a linear layer on a GPU: choice, rivals, and what bounds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from hk_backend.kernels.costs import costs
from hk_backend.kernels.gemm_plan import Candidate, candidates, tiles_of
from hk_backend.lab.bench.gemm.layers import Layer
from hk_backend.lab.bench.gemm.timers import Problem, Timer
from hk_backend.lab.bench.rivals import Facts, Rival, rivals
from hk_backend.lab.timing.calibration import error_of

RIVALS = 8
"""Number of launches that are listed, with the choice among them."""
FLOPS_PER_CLOCK = {"bf16": 4096, "f16": 4096, "e4m3": 8192}
"""FLOPs of a CU per clock, by the format of the activations."""
BYTES = {"bf16": 2, "f16": 2, "e4m3": 1}


@dataclass(frozen=True)
class Roofline:
    """Microseconds that no kernel can go below: matrix units at their peak, and memory."""

    matrix: float
    memory: float

    @property
    def name(self) -> str:
        return "matrix" if self.matrix >= self.memory else "memory"


@dataclass(frozen=True)
class GemmExplanation:
    """The launch of a layer with M rows, its rivals and its bound.

    `choice`: HK's launch, timed on this machine or planned. `rivals`: the first is the choice.
    """

    layer: Layer
    m: int
    choice: Candidate
    rivals: list[Rival]
    bound: Roofline

    def as_json(self) -> dict[str, Any]:
        """The explanation as plain data; times in microseconds."""
        layer, choice = self.layer, self.choice
        return {
            "format": layer.format,
            "m": self.m,
            "n": layer.n,
            "k": layer.k,
            "arch": choice.entry.arch,
            "compute_units": layer.compute_units,
            "kernel": choice.entry.name,
            "splits": choice.splits,
            "microseconds": choice.microseconds,
            "source": choice.source,
            "model_error_rms": error_of("gemm"),
            "rivals": [rival.as_json() for rival in self.rivals],
            "bound": {**asdict(self.bound), "by": self.bound.name},
        }


def explain(
    layer: Layer, m: int, timer: Timer, clocked: int = 0, say: Callable[[str], object] = print
) -> GemmExplanation:
    """Explain the launch of a layer with M rows.

    Args:
        timer: the timing model of the GPU.
        clocked: number of rivals that the timer times.

    Raises:
        RuntimeError: the emulator cannot execute a kernel to its end.
    """
    choice = layer.launch(m)
    chosen = choice.entry.name, choice.splits
    every = sorted(
        candidates(layer.family, m, layer.n, layer.k, layer.compute_units),
        key=lambda each: ((each.entry.name, each.splits) != chosen, each.microseconds),
    )
    problem = Problem(layer.of, m, layer.n, layer.k)
    found = rivals(
        every[:RIVALS],
        partial(_facts, layer, m),
        lambda each: timer.microseconds(each.entry, each.splits, problem),
        clocked,
        say,
    )
    return GemmExplanation(layer, m, choice, found, roofline(layer, m))


def roofline(layer: Layer, m: int) -> Roofline:
    """The bound that follows from the peak rates in the timing model's parameters."""
    from hk_backend import _emulator

    of, n, k = layer.of, layer.n, layer.k
    parameters = _emulator.TimingParameters(layer.family[0].arch)
    clocks = 2.0 * m * n * k / FLOPS_PER_CLOCK[of.activations] / layer.compute_units
    moved = BYTES[of.activations] * m * k + BYTES[of.weights] * n * k + 2 * m * n
    return Roofline(clocks / parameters["clock"] / 1e3, moved / parameters["hbm"] / 1e6)


def _facts(layer: Layer, m: int, of: Candidate) -> Facts:
    """The kernel, its tile and splits, and the rounds in which all CUs take its workgroups."""
    entry = of.entry
    workgroups = tiles_of(entry, m, layer.n) * of.splits
    at_once = layer.compute_units * costs(entry.arch).gemm[entry.name].resident
    return {
        "kernel": entry.name,
        "tile": f"{entry.tile.rows}x{entry.tile.columns}x{entry.tile.depth}",
        "splits": of.splits,
        "workgroups": workgroups,
        "rounds": -(-workgroups // at_once),
    }
