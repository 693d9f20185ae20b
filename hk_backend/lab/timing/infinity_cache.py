"""HBM time of a launch whose reads displace dirty lines of others from the Infinity Cache.

A benchmark that overwrites its caches before each launch leaves the Infinity Cache full of dirty
lines. Loads take lines of it, non-temporal ones do not. The first lines taken are clean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hk_backend import _emulator
    from hk_backend.lab.timing.launch import Traced


class Traffic(NamedTuple):
    """Bytes of a launch that no other traced workgroup touches: shared operands displace nothing.

    `streamed`: those read by non-temporal loads.
    """

    read: float
    streamed: float
    written: float


def traffic_of(traced: Traced) -> Traffic:
    """Bytes of all workgroups of a launch, from those of the traced ones."""
    first = {work: number for number, work in reversed(list(enumerate(traced.work)))}
    known = sorted(first)
    own = traced.trace.traffic
    return Traffic(
        *(
            float(np.interp(traced.launch.work, known, [own[first[w]][kind] for w in known]).sum())
            for kind in range(3)
        )
    )


def displaced(traffic: Traffic, parameters: _emulator.TimingParameters) -> float:
    """Bytes of others that a launch's reads displace to HBM."""
    taken = traffic.read - traffic.streamed - parameters["infinity_cache_clean"] * 1e6
    return float(min(max(taken, 0.0), parameters["infinity_cache_dirty"] * 1e6))


def with_write_backs(traced: Traced, parameters: _emulator.TimingParameters) -> Mapping[str, float]:
    """The HBM's parameters for a launch whose reads pay for the lines that they displace."""
    traffic, cost = traffic_of(traced), parameters["hbm_write_cost"]
    slower = 1 + cost * displaced(traffic, parameters) / max(traffic.read, 1.0)
    return {"hbm": parameters["hbm"] / slower, "hbm_write_cost": cost / slower}
