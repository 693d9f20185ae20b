"""The kernel that serves a linear layer on a GPU: the choice, its rivals, and what bounds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hk_backend.bench.gemm.layers import Layer
from hk_backend.bench.gemm.timers import Problem, Timer
from hk_backend.kernels.gemm_plan import Candidate, candidates, costs, tiles_of
from hk_backend.timing.calibration import error_of

RIVALS = 8
"""That are listed, the choice among them."""
FLOPS_PER_CLOCK = {"bf16": 4096, "f16": 4096, "e4m3": 8192}
"""Of a CU, by what the matrix unit multiplies: the activations' format."""
BYTES = {"bf16": 2, "f16": 2, "e4m3": 1}


@dataclass(frozen=True)
class Rival:
    """A candidate.

    Args:
        workgroups: of the launch. rounds: of them, as many at a time as all CUs hold.
        planned: microseconds by the planner. clocked: by the timing model; None: not asked for.
    """

    kernel: str
    tile: str
    splits: int
    workgroups: int
    rounds: int
    planned: float
    clocked: float | None = None


@dataclass(frozen=True)
class Bound:
    """What no kernel can pass: microseconds of the matrix units at their peak, of the memory."""

    matrix: float
    memory: float

    @property
    def name(self) -> str:
        return "matrix" if self.matrix >= self.memory else "memory"


@dataclass(frozen=True)
class Explanation:
    """All that is known of a layer with M rows.

    `choice`: HK's launch, timed on this machine or planned. `rivals`: the first is the choice.
    """

    layer: Layer
    m: int
    choice: Candidate
    rivals: list[Rival]
    bound: Bound

    def as_json(self) -> dict[str, Any]:
        """Plain data; times in microseconds."""
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
            "rivals": [asdict(rival) for rival in self.rivals],
            "bound": {**asdict(self.bound), "by": self.bound.name},
        }


def explain(
    layer: Layer, m: int, timer: Timer, clocked: int = 0, say: Callable[[str], object] = print
) -> Explanation:
    """Of a layer with M rows.

    Args:
        timer: the timing model of the GPU. clocked: how many of the rivals it times.

    Raises:
        RuntimeError: a kernel that cannot go on in the emulator.
    """
    choice = layer.launch(m)
    every = sorted(
        candidates(layer.family, m, layer.n, layer.k, layer.compute_units),
        key=lambda each: (not _same(each, choice), each.microseconds),
    )
    rivals = []
    for number, each in enumerate(every[:RIVALS]):
        time = None
        if number < clocked:
            say(f"{number + 1}/{min(clocked, RIVALS)}  {each.entry.name}, {each.splits} splits")
            problem = Problem(layer.of, m, layer.n, layer.k)
            time = timer.microseconds(each.entry, each.splits, problem)
        rivals.append(_rival(each, layer, m, time))
    return Explanation(layer, m, choice, rivals, bound(layer, m))


def bound(layer: Layer, m: int) -> Bound:
    """By the peaks that the timing model's parameters state."""
    from hk_backend import _emulator

    of, n, k = layer.of, layer.n, layer.k
    parameters = _emulator.TimingParameters(layer.family[0].arch)
    clocks = 2.0 * m * n * k / FLOPS_PER_CLOCK[of.activations] / layer.compute_units
    moved = BYTES[of.activations] * m * k + BYTES[of.weights] * n * k + 2 * m * n
    return Bound(clocks / parameters["clock"] / 1e3, moved / parameters["hbm"] / 1e6)


def _rival(of: Candidate, layer: Layer, m: int, clocked: float | None) -> Rival:
    entry = of.entry
    workgroups = tiles_of(entry, m, layer.n) * of.splits
    at_once = layer.compute_units * costs(entry.arch)[entry.name].resident
    tile = f"{entry.tile.rows}x{entry.tile.columns}x{entry.tile.depth}"
    rounds = -(-workgroups // at_once)
    return Rival(entry.name, tile, of.splits, workgroups, rounds, of.microseconds, clocked)


def _same(one: Candidate, other: Candidate) -> bool:
    return (one.entry.name, one.splits) == (other.entry.name, other.splits)
