"""Processor time is put down to parts and files, and judged by how fast the processor is."""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.models import ROOT
from tests.suite import cost
from tests.suite.cost import BUDGET, FAILS_AT, ZEN_4_SPEED, Cost, emulator_speed, process_seconds
from tests.suite.results import Results, read

pytest_plugins = ["pytester"]

FAKE_CLOCK = """
import itertools
from tests.suite.cost import Meter

def pytest_configure(config):
    ticks = itertools.count(100.0)
    config.pluginmanager.register(Meter(lambda: next(ticks)))
"""
PHASES = 3
"""A test has as many, and the clock ticks once in each."""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_each_file_has_its_tests_time(
    workers: tuple[str, ...],
    pytester: pytest.Pytester,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    pytester.makeconftest(FAKE_CLOCK)
    two, one = "def test_1(): pass\ndef test_2(): assert 0", "def test_1(): pass"
    pytester.makepyfile(test_two=two, test_one=one)
    log = tmp_path / "log"
    pytester.runpytest_subprocess(f"--report-log={log}", "-p", "no:cacheprovider", *workers)
    found = read("units", [log]).seconds_by_file
    assert found == {"test_two.py": 2 * PHASES, "test_one.py": PHASES}


def test_children_that_ended_count(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {
        resource.RUSAGE_SELF: SimpleNamespace(ru_utime=1.0, ru_stime=0.5),
        resource.RUSAGE_CHILDREN: SimpleNamespace(ru_utime=20.0, ru_stime=4.0),
    }
    monkeypatch.setattr(resource, "getrusage", used.__getitem__)
    monkeypatch.setattr(cost, "_running", 0.0)  # of children that other tests of this process have
    assert process_seconds() == 25.5
    cost.note_running(2.0)
    assert process_seconds() == 27.5


def spent(core_minutes: float, speed: float = ZEN_4_SPEED) -> Cost:
    """Two parts that spent as much together."""
    units = Results("units", core_minutes=core_minutes - 1, seconds_by_file=Counter(a=30, b=90))
    vllm = Results("vllm", core_minutes=1, seconds_by_file=Counter(c=60))
    return Cost([units, vllm], speed)


@pytest.mark.parametrize("faster", [1, 2, 0.5])
def test_the_budget_is_the_processor_s(faster: float) -> None:
    budget, speed = BUDGET / faster, faster * ZEN_4_SPEED
    assert spent(budget, speed).verdict().startswith(f"{budget:.1f} core-minutes of a budget of ")
    over = spent(FAILS_AT * budget, speed)
    assert (over.verdict().partition(":")[0], over.fails) == ("WARNING", False)
    failed = spent(FAILS_AT * budget + 0.1, speed)
    assert (failed.verdict().partition(":")[0], failed.fails) == ("FAILED cost", True)


def test_the_table_has_parts_and_the_most_expensive_files() -> None:
    shown = [" ".join(line.split()) for line in spent(5).table()[1:]]
    assert shown == ["4.0 units", "1.0 vllm", "1.5 b", "1.0 c", "0.5 a"]


def test_speed_is_instructions_over_the_clock_s_seconds() -> None:
    slow, fast = (emulator_speed(iter((5.0, 5.0 + seconds)).__next__) for seconds in (1.0, 0.25))
    assert fast == 4 * slow > 0
