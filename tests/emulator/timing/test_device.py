"""Workgroups on the whole device, of a size that can be dealt by hand."""

from __future__ import annotations

import pytest

from hk_backend import _emulator


def schedule(lengths: list[float], slots: int = 1, **changes: float) -> _emulator.DeviceTime:
    """On two XCDs of two CUs: 0 and 1, 2 and 3."""
    small = {"xcds": 2, "compute_units": 4, "workgroup_start": 7, **changes}
    return _emulator.schedule(lengths, slots, _emulator.TimingParameters("gfx950", small))


def test_workgroups_go_round_the_xcds_to_the_unit_that_is_free_first() -> None:
    time = schedule([10, 10, 30, 30, 10, 10, 10, 10])
    assert time.places.tolist() == [0, 2, 1, 3, 0, 2, 0, 2]
    assert time.clocks == 10 + 7 + 10 + 7 + 10
    assert time.busy_share == pytest.approx(120 / (4 * time.clocks))


def test_an_xcd_waits_for_its_own_units_though_others_are_free() -> None:
    time = schedule([100, 1, 100, 1, 100, 1])
    assert time.places.tolist() == [0, 2, 1, 3, 0, 2]
    assert time.clocks == 207


def test_every_unit_gets_one_before_any_gets_two() -> None:
    time = schedule([10] * 8, slots=2)
    assert [place // 2 for place in time.places.tolist()] == [0, 2, 1, 3, 0, 2, 1, 3]
    assert sorted(time.places.tolist()) == list(range(8))
    assert (time.clocks, time.busy_share) == (10, 1)


def test_a_place_that_is_empty_counts_as_idle() -> None:
    assert schedule([10] * 4, slots=2).busy_share == 0.5
