"""Sensitivity of a modelled time to each of the timing model's unpublished parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from hk_backend.lab.timing import model
from hk_backend.lab.timing.launch import Traced

LEAST = 0.005
"""Smallest relative change of the time that is reported."""
UNSURE = ("calibrated", "guessed")
OF_TRACES = ("scalar_cold", "scalar_miss", "vector_memory_in_flight")
"""Parameters of replays of hardware's traces alone."""
OF_OPERANDS = ("l2_size", "l2_kept", "l2_drift")
"""Parameters of the L2's share of operands, for a launch that tells each workgroup's operands."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the timing model, as its table describes it."""

    name: str
    value: float
    low: float
    high: float
    certainty: str
    unit: str
    what: str
    source: str


@dataclass(frozen=True)
class Effect:
    """Relative time with one parameter at the ends of its range; 1: the time does not change."""

    parameter: Parameter
    low: float
    high: float

    @property
    def size(self) -> float:
        return max(abs(self.low - 1), abs(self.high - 1))


def table(arch: str, measured: Mapping[str, float] | None = None) -> list[Parameter]:
    """Every parameter of the model of `arch`, with the `measured` value where there is one.

    Raises `ValueError` for an unknown arch.
    """
    from hk_backend import _emulator

    own = [Parameter(*row) for row in _emulator.timing_parameters(arch)]
    return [_measured(row, (measured or {}).get(row.name)) for row in own]


def _measured(row: Parameter, value: float | None) -> Parameter:
    if value is None:
        return row
    about = {"certainty": "measured", "source": "hk-backend time --measure"}
    return replace(row, value=value, low=value, high=value, **about)


def effects(
    traced: Traced,
    changes: Mapping[str, float],
    say: Callable[[str], object] = lambda _: None,
) -> list[Effect]:
    """Effects of the unsure parameters that `changes` does not set, the largest first.

    Left out are effects below `LEAST`.
    """
    arch = traced.launch.machine.arch
    base = model.time(traced, changes).microseconds
    given = {*changes, *_idle(traced, changes)}
    unsure = [p for p in table(arch) if p.certainty in UNSURE and p.name not in given]
    ends = [(p.name, end) for p in unsure for end in (p.low, p.high) if end != p.value]

    def ratio(end: tuple[str, float]) -> float:
        return model.time(traced, {**changes, end[0]: end[1]}).microseconds / base

    ratios: dict[tuple[str, float], float] = {}
    with ThreadPoolExecutor(
        len(os.sched_getaffinity(0))
    ) as threads:  # a replay releases Python's global lock
        for end, time in zip(ends, threads.map(ratio, ends), strict=True):
            ratios[end] = time
            say(f"replaying with {end[0]}={end[1]:g} ({len(ratios)} of {len(ends)})")
    found = [
        Effect(p, ratios.get((p.name, p.low), 1), ratios.get((p.name, p.high), 1)) for p in unsure
    ]
    return sorted((e for e in found if e.size >= LEAST), key=lambda e: -e.size)


def _idle(traced: Traced, changes: Mapping[str, float]) -> Iterator[str]:
    """Parameters that this launch's time does not depend on."""
    yield from OF_TRACES
    if traced.launch.operands is None:
        yield from OF_OPERANDS
    else:
        yield "l2_hits"
    if not changes.get("infinity_cache_dirty"):
        yield "infinity_cache_clean"
