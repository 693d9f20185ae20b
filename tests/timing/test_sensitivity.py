"""Which numbers of the model a figure depends on."""

from __future__ import annotations

import pytest

from hk_backend.timing import model
from hk_backend.timing.sensitivity import LEAST, UNSURE, Effect, effects, table
from tests.timing.launches import PACKED, traced

SHAPE = "heads=2/1,tokens=256,causal"


@pytest.fixture(scope="module")
def found() -> list[Effect]:
    """The effects on the launch of `SHAPE`, nothing changed."""
    return effects(traced(PACKED, SHAPE), {})


def test_each_effect_is_the_time_with_that_parameter(found: list[Effect]) -> None:
    launch = traced(PACKED, SHAPE)
    base = model.time(launch).microseconds
    assert found
    for effect in found:
        row = effect.parameter
        for ratio, end in ((effect.low, row.low), (effect.high, row.high)):
            assert ratio == model.time(launch, {row.name: end}).microseconds / base


def test_only_unsure_ones_that_matter_and_are_not_set_the_largest_first(
    found: list[Effect],
) -> None:
    sizes = [effect.size for effect in found]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) >= LEAST
    assert {effect.parameter.certainty for effect in found} <= set(UNSURE)
    largest = found[0].parameter
    without = effects(traced(PACKED, SHAPE), {largest.name: largest.value})
    assert largest.name not in {effect.parameter.name for effect in without}


def test_a_launch_that_takes_no_time_depends_on_the_launch() -> None:
    largest = effects(traced(PACKED, "heads=1/1,tokens=1"), {"launch": 1000.0})
    assert largest == []  # all the rest is less than LEAST of a millisecond
    assert effects(traced(PACKED, "heads=1/1,tokens=1"), {})[0].parameter.name == "launch"


def test_an_arch_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="gfx90a"):
        table("gfx90a")
