"""What bounds a launch, on machines that lack something on purpose, and its busiest unit."""

from __future__ import annotations

from typing import Any

import pytest

from hk_backend import _emulator
from hk_backend.timing import model
from hk_backend.timing.bound import Bound, Limits, bound, limits
from hk_backend.timing.busiest import IDLE, LAUNCH, Busiest, busiest
from hk_backend.timing.model import Modelled
from hk_backend.timing.workgroup import longest
from tests.timing.launches import MANY, PACKED, traced


def bound_of(kernel: str, shape: str, **changes: float) -> Bound:
    launch = traced(kernel, shape)
    modelled = model.time(launch, changes)
    return bound(modelled, longest(launch, modelled).wave_clocks)


def limits_of(kernel: str, shape: str, **changes: float) -> tuple[model.Modelled, Limits]:
    launch = traced(kernel, shape)
    modelled = model.time(launch, changes)
    return modelled, limits(modelled, longest(launch, modelled))


@pytest.mark.parametrize(
    ("changes", "unit"),
    [({"matrix": 8.0}, "matrix"), ({"vector": 32.0}, "vector"), ({"lds_read_b128": 16.0}, "lds")],
    ids=str,
)
def test_a_slow_unit_is_the_bound(changes: dict[str, float], unit: str) -> None:
    found = bound_of(PACKED, MANY, **changes)
    assert (found.kind, found.unit) == ("unit", unit)
    assert 0.6 <= found.unit_share <= 1


def test_waits_are_the_bound() -> None:
    assert bound_of(PACKED, MANY, lds_latency=5000).kind == "latency"
    assert bound_of(PACKED, MANY, barrier_release=5000).kind == "latency"


def test_issue_is_the_bound() -> None:
    assert bound_of(PACKED, MANY, issue=80).kind == "issue"


def test_the_launch_is_the_bound() -> None:
    found = bound_of(PACKED, MANY, launch=10000)
    assert found.kind == "launch"
    modelled, _ = limits_of(PACKED, MANY, launch=10000)
    assert found.launch_share == pytest.approx(10000 / modelled.microseconds)


def test_limits_follow_from_the_parameters() -> None:
    modelled, limit = limits_of(PACKED, MANY, hbm=1.5, clock=1.2)
    assert limit.hbm_bytes == 1.5e12
    assert limit.peak_flops == pytest.approx(2.5e15 / 2, rel=0.01)
    assert limit.clocked_flops / limit.peak_flops == pytest.approx(modelled.clock_ghz / 1.2)
    assert modelled.flops_per_second < limit.clocked_flops


# --- the busiest unit -----------------------------------------------------------------------------


SHARES = {"matrix": 0.5, "vector": 0.45, "matrix issue": 0.02, "lds": 0.4, "hbm": 0.1}


def hand_made(units: dict[str, float], **changes: float) -> Modelled:
    """100 us at 2 GHz, with nothing before them."""
    values: dict[str, Any] = {
        "microseconds": 100.0, "stream_microseconds": 100.0, "clock_ghz": 2.0, "clocks": 2e5,
        "flops": 1.0, "bytes": 1.0, "resident": 1, "busy_share": 1.0, "active": 256,
        "parameters": _emulator.TimingParameters("gfx950"), **changes,
    }  # fmt: skip
    return Modelled(arch="gfx950", unit_share=units, lengths={}, times=[], **values)


def test_the_busiest_unit() -> None:
    assert busiest(hand_made(SHARES)) == Busiest("matrix", 0.5)
    assert busiest(hand_made({**SHARES, "lds": 0.9})) == Busiest("lds", 0.9)


def test_units_without_work_and_the_launch_itself() -> None:
    assert busiest(hand_made(SHARES, busy_share=0.25)) == Busiest(IDLE, 0.75)
    assert busiest(hand_made(SHARES, clocks=1e5, busy_share=0.4)) == Busiest(LAUNCH, 0.5)
    half = busiest(hand_made({**SHARES, "matrix": 0.9}, clocks=1.2e5))
    assert half.name == "matrix"
    assert half.share == pytest.approx(0.9 * 0.6)
