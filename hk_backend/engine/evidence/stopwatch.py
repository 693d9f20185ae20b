"""How long one call takes: on the host by a clock, on a GPU by events on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import torch

from hk_backend.engine.evidence.contest import Call

EVICTED_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20}
"""How much is read between two calls, by torch's device: about what a last-level cache holds."""


class Stopwatch(Protocol):
    """Times calls."""

    def now(self) -> float:
        """Seconds of the wall clock, to keep to a budget."""

    def seconds(self, call: Call) -> float:
        """How long `call` takes."""


@dataclass(frozen=True)
class HostStopwatch:
    """Times calls that have ended when they return.

    Attributes:
        now: a clock, in seconds.
        evict: runs before each call, untimed. A step of a model reads each weight once, so a call
            must not find its own weight in a cache.
    """

    now: Callable[[], float] = perf_counter
    evict: Call = lambda: None

    def seconds(self, call: Call) -> float:
        self.evict()
        began = self.now()
        call()
        return self.now() - began


@dataclass(frozen=True)
class StreamStopwatch:
    """Times calls that enqueue work on the current stream of a GPU.

    Attributes:
        now: a clock, in seconds.
        evict: enqueues work before each call: it empties the caches, and while it runs the host
            enqueues the call, so that no launch overhead is timed.
        event: makes an event that can be timed.
    """

    now: Callable[[], float] = perf_counter
    evict: Call = lambda: None
    event: Callable[[], torch.cuda.Event] = lambda: torch.cuda.Event(enable_timing=True)

    def seconds(self, call: Call) -> float:
        began, ended = self.event(), self.event()
        self.evict()
        began.record()
        call()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3


def stopwatch_for(operator: str, device: str) -> Stopwatch:
    """The stopwatch for a kind of layer.

    Args:
        operator: of the kind. Attention reads what was just computed: on the host its caches stay.
        device: the name of HK's device.
    """
    if device.startswith("hip"):
        return StreamStopwatch(evict=_eviction("cuda"))
    return HostStopwatch(evict=_eviction("cpu")) if operator == "linear" else HostStopwatch()


def _eviction(device: str) -> Call:
    """A call that reads as many bytes as a last-level cache holds."""
    scratch = torch.ones(EVICTED_BYTES[device] // 4, dtype=torch.float32, device=device)
    return scratch.sum
