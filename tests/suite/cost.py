"""Processor time of the suite, and a budget that fits the processor.

Waiting is no processor time, but a busy neighbour slows a core down. The run therefore times the
fixed launch before and after the parts, and its budget is that of the slower one.

`Meter` is a pytest plugin: to the report of each phase of a test it adds the processor seconds of
the process and of the children that ended in it. `Cost` adds them up. `emulator_speed` tells how
fast the processor is, by one fixed launch in the emulator.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from hk_backend.kernels import catalogue
from hk_backend.lab.timing.workloads.attention_prefill import launch, small

if TYPE_CHECKING:
    from tests.suite.results import Results

BUDGET = 20.0
"""Core-minutes of all parts of `make test` on Zen 4."""
ZEN_4_SPEED = 3.0e6
"""Wave instructions of the fixed launch in a processor second: measured on an AMD EPYC of Zen 4
(family 25, model 17), beside nothing else."""
FAILS_AT = 2
"""Budgets that a run may not exceed; above one it warns."""
FILES_SHOWN = 10
Clock = Callable[[], float]

_running = 0.0


def note_running(seconds: float) -> None:
    """Processor seconds of a running child's own children, which have ended: the system counts them
    only when that child has ended. Whoever waits for it takes them back."""
    global _running  # noqa: PLW0603
    _running += seconds


def process_seconds() -> float:
    """Processor seconds of this process, its threads, and its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used) + _running


class Meter:
    """The plugin. A report's `process_seconds` also reach the report log, and pytest-xdist's
    controller."""

    def __init__(self, clock: Clock = process_seconds) -> None:
        self._clock = clock
        self._before = clock()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        """Collecting, and waiting for the next test, count for no test."""
        self._before = self._clock()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = self._clock()
        report.process_seconds = now - self._before  # type: ignore[attr-defined]
        self._before = now
        return report


def emulator_speed(clock: Clock = time.process_time) -> float:
    """Wave instructions that the emulator executes in a processor second, on one core."""
    entry = catalogue("gfx950").kernel("attention_prefill_bf16_d128_packed")
    first, fixed = (launch(entry, small(entry, keys)) for keys in (512, 16384))
    first.run()  # loads the code object and its line tables
    begin = clock()
    report = fixed.run()
    return report.counters.instructions / (clock() - begin)


@dataclass(frozen=True)
class Cost:
    """Processor time of `parts`; the emulator ran `speed` wave instructions a second there."""

    parts: Sequence[Results]
    speed: float

    @property
    def core_minutes(self) -> float:
        return sum(part.core_minutes for part in self.parts)

    @property
    def budget(self) -> float:
        """Core-minutes that this processor may take."""
        return BUDGET * ZEN_4_SPEED / self.speed

    @property
    def fails(self) -> bool:
        return self.core_minutes > FAILS_AT * self.budget

    def table(self) -> list[str]:
        """Core-minutes of each part and of the files that use most."""
        files = sum((Counter(part.seconds_by_file) for part in self.parts), Counter())
        shown = [
            *((part.part, part.core_minutes) for part in self.parts),
            *((name, seconds / 60) for name, seconds in files.most_common(FILES_SHOWN)),
        ]
        return ["core-minutes", *(f"{minutes:9.1f}  {name}" for name, minutes in shown)]

    def verdict(self) -> str:
        """The last line about the whole suite."""
        limit = f"{self.budget:.1f} core-minutes ({BUDGET:g} on Zen 4)"
        speed = f"this processor emulates {self.speed / 1e6:.2f} M wave instructions a second"
        said = f"{self.core_minutes:.1f} core-minutes of a budget of {limit}; {speed}"
        if self.fails:
            return f"FAILED cost: more than {FAILS_AT} budgets: {said}"
        return f"WARNING: over the budget: {said}" if self.core_minutes > self.budget else said
