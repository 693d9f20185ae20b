"""Explains how attention's rows and keys are dealt on a GPU: the choice and its rivals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from hk_backend.kernels import Catalogue, Fact, Family, NoKernel
from hk_backend.kernels.attention_plan import CLOCK, Choice, choices, choose
from hk_backend.kernels.masks import NO_MASK, PART, WINDOW, WINDOW_PART
from hk_backend.kernels.row_sources import PAGED
from hk_backend.lab.bench.rivals import Facts, Rival, rivals
from hk_backend.lab.timing.calibration import error_of
from hk_backend.lab.timing.workloads import attention_merge as merge
from hk_backend.lab.timing.workloads import attention_prefill as attention

OPERATOR = "attention_prefill"


@dataclass(frozen=True)
class AttentionExplanation:
    """All ways to deal a step of attention. `rivals`: the first is the planner's choice."""

    shape: attention.Shape
    head_size: int
    compute_units: int
    rivals: list[Rival]

    def as_json(self) -> dict[str, Any]:
        """The explanation as plain data.

        Times are in microseconds and include both kernels and the gaps before them.
        """
        return {
            **asdict(self.shape),
            "head_size": self.head_size,
            "compute_units": self.compute_units,
            "model_error_rms": error_of(OPERATOR),
            "rivals": [rival.as_json() for rival in self.rivals],
        }


def explain(
    kernels: Catalogue,
    shape: attention.Shape,
    head_size: int,
    compute_units: int,
    clocked: int = 0,
    say: Callable[[str], object] = print,
) -> AttentionExplanation:
    """Explain attention over bf16 keys in pages of 16 tokens.

    Args:
        clocked: number of rivals that the timing model times.

    Raises:
        ValueError: there are no kernels for this head size.
        RuntimeError: the emulator cannot execute a kernel to its end.
    """
    if head_size not in CLOCK.attention:
        there = " or ".join(map(str, CLOCK.attention))
        raise ValueError(f"head size {head_size}; valid: {there}")
    every = ways(kernels, shape, head_size, compute_units)
    clock = partial(microseconds, kernels, shape, head_size)
    found = rivals(every, _facts, clock, clocked, say)
    return AttentionExplanation(shape, head_size, compute_units, found)


def ways(
    kernels: Catalogue, shape: attention.Shape, head_size: int, compute_units: int
) -> list[Choice]:
    """All ways to deal a step: the planner's choice, then the others by their planned times."""
    family = _kernels(kernels, head_size, _mask(shape))
    sizes = [kernel.tile.rows for kernel in family]
    of = attention.launch_sizes(family[0], shape), compute_units, sizes
    chosen = choose(*of)
    return sorted(choices(*of), key=lambda each: (each != chosen, each.microseconds))


def _facts(of: Choice) -> Facts:
    """Rows of a workgroup, parts of the keys, keys of a part, workgroups of the launch."""
    parts = of.parts
    return {
        "rows": of.rows,
        "parts": parts.number,
        "keys": parts.keys,
        "workgroups": of.workgroups,
    }


def _mask(shape: attention.Shape) -> str:
    if shape.window:
        return WINDOW_PART if shape.parts > 1 else WINDOW
    return PART if shape.parts > 1 else NO_MASK


def _kernels(kernels: Catalogue, head_size: int, mask: str) -> Family:
    facts: dict[str, Fact] = {"dtype": "bf16", "stored": "bf16", "keys": PAGED}
    of = {**facts, "head_size": head_size, "padded": False, "mask": mask}
    return _there(kernels.alternatives(OPERATOR, **of))


def microseconds(kernels: Catalogue, shape: attention.Shape, head_size: int, way: Choice) -> float:
    """Modelled time of all launches of one way, one after the other in a stream.

    Raises `RuntimeError` if the emulator cannot execute a kernel to its end.
    """
    from hk_backend.lab.timing.launch import trace
    from hk_backend.lab.timing.model import time

    shape = replace(shape, parts=way.parts.number)
    family = _kernels(kernels, head_size, _mask(shape))
    (entry,) = (kernel for kernel in family if kernel.tile.rows == way.rows)
    launches = [attention.launch(entry, shape)]
    if shape.parts > 1:
        join = _there(kernels.alternatives("attention_merge", dtype="bf16", head_size=head_size))
        launches += [
            merge.launch(join[0], merge.Shape(sum(shape.queries), shape.heads, shape.parts))
        ]
    return float(sum(time(trace(each, threads=1)).stream_microseconds for each in launches))


def _there(found: Family | NoKernel) -> Family:
    assert not isinstance(found, NoKernel)
    return found
