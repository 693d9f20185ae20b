"""Measures the time of one call: on the host by a clock, on a GPU by events on its stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time

import torch

from hk_backend.engine.evidence.contest import Call

EVICTED_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20}
"""Bytes read between two calls, by torch's device: about the size of a last-level cache."""

QUIET = 0.8
"""Least share of the wall time that the timing thread is on a core, if the machine is quiet.

On two cores shared by ten busy processes it was a quarter; alone it is above 0.95.
"""


@dataclass
class HostStopwatch:
    """Measures calls that have ended when they return.

    Attributes:
        now: a clock, in seconds, also to keep to a budget.
        evict: runs before each call, untimed. A step of a model reads each weight once, so a call
            must not find its own weight in a cache.
        running: processor time of the calling thread, in seconds. The thread takes part in each
            call, so it runs all the time unless others have its core.
    """

    now: Callable[[], float] = perf_counter
    evict: Call = lambda: None
    running: Callable[[], float] = thread_time
    _passed: float = 0.0
    _ran: float = 0.0

    def seconds(self, call: Call) -> float:
        """Seconds that `call` takes."""
        self.evict()
        began, ran = self.now(), self.running()
        call()
        passed = self.now() - began
        self._passed += passed
        self._ran += self.running() - ran
        return passed

    @property
    def disturbed(self) -> bool:
        """Whether other processes disturbed the calls so much that their times say little."""
        return self._ran < QUIET * self._passed


@dataclass(frozen=True)
class StreamStopwatch:
    """Measures calls that enqueue work on the current stream of a GPU.

    Attributes:
        now, seconds, disturbed: see `HostStopwatch`.
        evict: enqueues work before each call. The work empties the caches, and while it runs the
            host enqueues the call, so that no launch overhead is timed.
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

    @property
    def disturbed(self) -> bool:
        return False


Stopwatch = HostStopwatch | StreamStopwatch


def stopwatch_for(operator: str, device: str) -> Stopwatch:
    """The stopwatch for a kind of layer.

    Args:
        operator: the kind's operator. Prefill reads what was just computed, so on the host its
            caches stay. A weight, or a request's cache, is read once in a step.
        device: name of HK's device.
    """
    if device.startswith("hip"):
        return StreamStopwatch(evict=_eviction("cuda"))
    return HostStopwatch() if operator == "attention" else HostStopwatch(evict=_eviction("cpu"))


def _eviction(device: str) -> Call:
    """Makes a call that reads as many bytes as a last-level cache holds."""
    scratch = torch.ones(EVICTED_BYTES[device] // 4, dtype=torch.float32, device=device)
    return scratch.sum
