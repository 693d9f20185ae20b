"""How the keys of a launch of attention are dealt on a GPU, and why: the choice and its rivals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from hk_backend.kernels import Catalogue, Fact, Family, NoKernel
from hk_backend.kernels.attention_plan import COSTS, Choice, choices, plan_parts
from hk_backend.kernels.masks import NO_MASK, PART
from hk_backend.kernels.row_sources import PAGED
from hk_backend.timing.calibration import error_of
from hk_backend.timing.workloads import attention, merge


@dataclass(frozen=True)
class Rival:
    """One way to deal the keys.

    Args:
        parts: of the keys, each of `keys`. workgroups: of the launch, by the planner.
        planned: microseconds by the planner. clocked: by the timing model; None: not asked for.
    """

    parts: int
    keys: int
    workgroups: int
    planned: float
    clocked: float | None = None


@dataclass(frozen=True)
class Explanation:
    """`rivals`: the first is the choice."""

    shape: attention.Shape
    head_size: int
    compute_units: int
    rivals: list[Rival]

    def as_json(self) -> dict[str, Any]:
        """Plain data; times in microseconds, both kernels and the gaps before them included."""
        return {
            **asdict(self.shape),
            "head_size": self.head_size,
            "compute_units": self.compute_units,
            "model_error_rms": error_of("attention_prefill"),
            "rivals": [asdict(rival) for rival in self.rivals],
        }


def explain(
    kernels: Catalogue,
    shape: attention.Shape,
    head_size: int,
    compute_units: int,
    clocked: int = 0,
    say: Callable[[str], object] = print,
) -> Explanation:
    """Of bf16 in pages of 16 tokens.

    Args:
        clocked: how many of the rivals the timing model times.

    Raises:
        ValueError: no kernels of this head size.
        RuntimeError: a kernel that cannot go on in the emulator.
    """
    if head_size not in COSTS:
        there = " or ".join(map(str, COSTS))
        raise ValueError(f"head size {head_size}; valid: {there}")
    longest, requests = max(shape.keys), len(shape.queries)
    rows = sum(shape.queries), requests, shape.heads
    of = (*rows, longest, head_size, compute_units)
    chosen = plan_parts(*of)
    every = sorted(choices(*of), key=lambda each: (each.parts != chosen, each.microseconds))
    rivals = []
    for number, each in enumerate(every):
        time = None
        if number < clocked:
            say(f"{number + 1}/{min(clocked, len(every))}  {each.parts.number} parts")
            way = replace(shape, parts=each.parts.number)
            time = _clock(kernels, way, head_size, compute_units)
        rivals.append(_rival(each, time))
    return Explanation(shape, head_size, compute_units, rivals)


def _rival(of: Choice, time: float | None) -> Rival:
    return Rival(of.parts.number, of.parts.keys, of.workgroups, of.microseconds, time)


def _clock(kernels: Catalogue, shape: attention.Shape, head_size: int, compute_units: int) -> float:
    """Microseconds of all launches of a way, one behind another."""
    from hk_backend.timing.model import time, trace
    from hk_backend.timing.standard import serving

    facts: dict[str, Fact] = {
        "dtype": "bf16",
        "stored": "bf16",
        "keys": PAGED,
        "head_size": head_size,
        "padded": False,
        "mask": PART if shape.parts > 1 else NO_MASK,
    }
    found = _there(kernels.alternatives("attention_prefill", **facts))
    launches = [serving(found, shape, compute_units)[1]]
    if shape.parts > 1:
        join = _there(kernels.alternatives("attention_merge", dtype="bf16", head_size=head_size))
        launches += [
            merge.launch(join[0], merge.Shape(sum(shape.queries), shape.heads, shape.parts))
        ]
    return float(sum(time(trace(each, threads=1)).stream_microseconds for each in launches))


def _there(found: Family | NoKernel) -> Family:
    assert not isinstance(found, NoKernel)
    return found
