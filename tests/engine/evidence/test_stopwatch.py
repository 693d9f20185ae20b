"""Both stopwatches, with stand-ins for the clock and for a GPU's events."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from hk_backend.engine.evidence import stopwatch
from hk_backend.engine.evidence.stopwatch import HostStopwatch, StreamStopwatch, stopwatch_for
from tests.engine.evidence.test_deciding import FakeClock


def test_the_host_times_the_call_and_not_the_eviction() -> None:
    clock = FakeClock()

    def takes(seconds: float) -> None:
        clock.seconds += seconds

    watch = HostStopwatch(clock, evict=lambda: takes(7.0))
    assert watch.seconds(lambda: takes(0.25)) == 0.25
    assert watch.now() == 7.25


@pytest.mark.parametrize(("share", "disturbed"), [(1.0, False), (0.85, False), (0.5, True)])
def test_a_thread_that_seldom_runs_is_disturbed(share: float, disturbed: bool) -> None:
    clock, ran = FakeClock(), FakeClock()

    def call() -> None:
        clock.seconds += 1.0
        ran.seconds += share

    watch = HostStopwatch(clock, running=ran)
    assert not watch.disturbed
    watch.seconds(call)
    assert watch.disturbed == disturbed


@dataclass
class Stream:
    """A stand-in for a GPU's stream: the enqueued work in order, each with its duration."""

    log: list[str] = field(default_factory=list)
    milliseconds: float = 0.0

    def enqueue(self, name: str, milliseconds: float) -> None:
        self.log.append(name)
        self.milliseconds += milliseconds

    def event(self) -> Event:
        return Event(self)


@dataclass
class Event:
    """A stand-in for `torch.cuda.Event`."""

    stream: Stream
    at: float = -1.0

    def record(self) -> None:
        self.stream.log.append("event")
        self.at = self.stream.milliseconds

    def synchronize(self) -> None:
        self.stream.log.append("wait")

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


def test_a_stream_is_timed_by_events_around_the_call() -> None:
    stream = Stream()
    watch = StreamStopwatch(
        evict=lambda: stream.enqueue("evict", 9.0),
        event=stream.event,  # type: ignore[arg-type]
    )
    assert watch.seconds(lambda: stream.enqueue("call", 2.0)) == pytest.approx(0.002)
    assert stream.log == ["evict", "event", "call", "event", "wait"]


def test_which_stopwatch_times_which_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    ones = torch.ones
    monkeypatch.setattr(
        stopwatch.torch, "ones", lambda n, dtype, device: (made.append(device), ones(1))[1]
    )
    assert isinstance(stopwatch_for("linear", "hip:gfx950"), StreamStopwatch)
    assert isinstance(stopwatch_for("attention", "hip:gfx950"), StreamStopwatch)
    assert isinstance(stopwatch_for("linear", "cpu:avx2"), HostStopwatch)
    assert isinstance(stopwatch_for("attention", "cpu:avx2"), HostStopwatch)
    assert made == ["cuda", "cuda", "cpu"]
