"""Timed launches: which of them decide, and which are ignored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hk_backend.kernels.catalogue import Family, catalogue
from hk_backend.kernels.gemm_formats import LAYERS, family, format_of
from hk_backend.kernels.gemm_plan import PLANNED, Candidate, candidates, sum_bytes, tiles_of
from hk_backend.measurements.launches import Launches, Weight, timed_here, timed_on
from hk_backend.terms.measurements import MEASURED, MODELLED, MeasuredLaunch
from tests.measurements import launches
from tests.measurements.launches import EMULATED, UNITS, timed

ARCH, N, K = "gfx950", 4096, 8192
FAMILY = family(catalogue(ARCH), LAYERS["bf16"])
WEIGHT = Weight(ARCH, UNITS, format_of(FAMILY[0]), N, K)
WORST = max(candidates(FAMILY, 64, N, K, UNITS), key=lambda found: found.microseconds)
"""The launch that the planner would never choose."""
OTHER = next(e for e in catalogue(ARCH).families["gemm"] if format_of(e) != WEIGHT.format)


def launch(m: int = 64, n: int = N, k: int = K, **changes: Any) -> MeasuredLaunch:
    of_worst = {"kernel": WORST.entry.name, "splits": WORST.splits}
    return launches.launch(FAMILY, m, n, k, **{**of_worst, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 0},
        {"n": 1.5},
        {"splits": 0},
        {"kernel": ""},
        {"microseconds": 0.0},
        {"microseconds": float("nan")},
        {"source": "guessed"},
        {"sha256": "0" * 63},
        {"tile": 64},
    ],
)
def test_a_launch_that_cannot_be_is_none(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MeasuredLaunch(**{**launch().model_dump(), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "0" * 64},
        {"kernel": "gemm_of_old"},
        {"kernel": OTHER.name, "sha256": OTHER.sha256},
        {"k": 64, "splits": 2},
        {"arch": "gfx90a"},
    ],
)
def test_launches_of_other_kernels_are_ignored_and_counted(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with timed(launch(**changes), launch(m=128)), caplog.at_level(logging.WARNING):
        found = timed_on(EMULATED)
        assert timed_on(EMULATED) is found
    assert (found.ignored, found.at(WEIGHT, 64), found.at(WEIGHT, 128)) == (
        1,
        launch(m=128),
        launch(m=128),
    )
    (said,) = caplog.messages
    assert "1 timed launches are of another build of the kernels and ignored" in said


rows_of = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from((MEASURED, MODELLED))), unique=True, min_size=1
)


@given(rows=rows_of, m=st.integers(1, 700))
@settings(max_examples=40)
def test_which_launch_decides_between_listed_rows(rows: list[tuple[int, str]], m: int) -> None:
    """A launch holds for its M and fewer, down to half; the fewest rows decide, then the source."""
    lines = [launch(m=rows, source=source) for rows, source in rows]
    found = Launches(lines).at(WEIGHT, m)
    holding = [each for each in lines if m <= each.m <= 2 * m]
    if found is None:
        assert not holding
    else:
        assert found in holding
        assert found.m == min(each.m for each in holding)
        same = {each.source for each in holding if each.m == found.m}
        assert found.source == (MEASURED if MEASURED in same else MODELLED)


def test_a_launch_is_of_its_own_weight_only() -> None:
    found = Launches([launch()])
    assert found.at(WEIGHT, 64)
    for other in (
        WEIGHT._replace(arch="gfx942"),
        WEIGHT._replace(compute_units=32),
        WEIGHT._replace(format=format_of(OTHER)),
        WEIGHT._replace(n=N + 1),
        WEIGHT._replace(k=K + 1),
    ):
        assert found.at(other, 64) is None


def test_a_timed_launch_decides_before_the_planner() -> None:
    def chosen(m: int, family: Family = FAMILY) -> tuple[str, int, str]:
        found = here.choose(family, m, N, K, UNITS)
        return found.entry.name, found.splits, found.source

    def planned(m: int, family: Family = FAMILY) -> tuple[str, int, str]:
        found = min(candidates(family, m, N, K, UNITS), key=lambda each: each.microseconds)
        return found.entry.name, found.splits, PLANNED

    tuned = (WORST.entry.name, WORST.splits, MODELLED)
    left = tuple(entry for entry in FAMILY if entry is not WORST.entry)
    assert planned(64) != tuned
    with timed(launch(), HK_DEVICE=EMULATED):
        here = timed_here(ARCH)
    assert [chosen(m) for m in (31, 32, 64, 65)] == [planned(31), tuned, tuned, planned(65)]
    assert here.choose(FAMILY, 64, N, K, UNITS).microseconds == 12.5
    assert chosen(64, left) == planned(64, left), "a kernel that failed here does not serve"


def test_launches_of_the_file_that_the_user_names_come_first(tmp_path: Path) -> None:
    with timed(launch(microseconds=1.0)) as kept:
        (path,) = kept.glob("*.json")
        named = tmp_path / "named.json"
        named.write_text(path.read_text())
    with timed(launch(microseconds=2.0), launch(m=128), HK_EVIDENCE=str(named)):
        found = timed_on(EMULATED)
    first, second = found.at(WEIGHT, 64), found.at(WEIGHT, 128)
    assert first is not None
    assert second is not None
    assert (first.microseconds, second.m) == (1.0, 128)


def test_there_is_room_for_the_sums_of_every_launch() -> None:
    """Odd numbers of rows count, too: a launch in a graph cannot ask for more."""
    m, n = 1000, 1024

    def room(of: Candidate) -> int:
        return sum_bytes(of.entry, tiles_of(of.entry, m, n), of.splits)

    most = max(candidates(FAMILY, m, n, K, UNITS), key=room)
    line = launch(m=m, n=n, kernel=most.entry.name, splits=most.splits)
    needed = Launches([line]).most_sum_bytes(FAMILY, n, K, UNITS)
    assert needed >= room(most) > Launches().most_sum_bytes(FAMILY, n, K, UNITS)
