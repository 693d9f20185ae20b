"""Where the clocks of a workgroup go, and which numbers of the model a figure depends on."""

from __future__ import annotations

import re

import pytest

from hk_backend.timing import model
from hk_backend.timing.sensitivity import LEAST, UNSURE, Effect, effects, table
from hk_backend.timing.workgroup import NO_LINE, Workgroup, longest
from tests.timing.launches import GEMM, PACKED, modelled, traced

LAUNCHES = [(PACKED, "heads=8/1,tokens=1024,causal"), (GEMM, "m=512,n=512,k=2048")]


def workgroup(kernel: str, shape: str, **changes: float) -> Workgroup:
    return longest(traced(kernel, shape), modelled(kernel, shape, **changes))


@pytest.mark.parametrize(("kernel", "shape"), LAUNCHES)
def test_clocks_by_line_are_those_of_the_waves(kernel: str, shape: str) -> None:
    found = workgroup(kernel, shape)
    of_waves = sum(w.wave_clocks for w in found.time.workgroups)
    waves = found.waves * len(found.time.workgroups)
    by_line = sum(clocks.total for clocks in found.lines.values())
    assert by_line * waves == pytest.approx(of_waves)
    assert found.wave_clocks.total * waves == pytest.approx(of_waves)
    assert found.wave_clocks.total <= found.clocks


@pytest.mark.parametrize(("kernel", "shape"), LAUNCHES)
def test_lines_are_of_the_source(kernel: str, shape: str) -> None:
    found = workgroup(kernel, shape)
    assert all(
        re.fullmatch(r"csrc/[\w/]+\.(hpp|hip):\d+", at) for at in found.lines if at != NO_LINE
    )
    assert found.lines.get(NO_LINE, found.wave_clocks).total < 0.05 * found.wave_clocks.total
    totals = [clocks.total for clocks in found.lines.values()]
    assert totals == sorted(totals, reverse=True)


def test_waits_are_named_by_what_is_slow() -> None:
    launch = LAUNCHES[0]
    base, slow = workgroup(*launch), workgroup(*launch, lds_latency=2000)
    assert slow.wave_clocks.stalls["lds"] > 5 * base.wave_clocks.stalls["lds"]
    slow = workgroup(*launch, infinity_cache_latency=90000, hbm_latency=90000)
    # one wave waits for its copy, the others at the barrier for that wave
    memory = slow.wave_clocks.stalls["vector memory"] + slow.wave_clocks.stalls["barrier"]
    assert memory > 0.8 * slow.wave_clocks.total


# --- which parameters a figure depends on ---------------------------------------------------------


SHAPE = "heads=2/1,tokens=256,causal"


@pytest.fixture(scope="module")
def effects_found() -> list[Effect]:
    """The effects on the launch of `SHAPE`, nothing changed."""
    return effects(traced(PACKED, SHAPE), {})


def test_each_effect_is_the_time_with_that_parameter(effects_found: list[Effect]) -> None:
    launch = traced(PACKED, SHAPE)
    base = model.time(launch).microseconds
    assert effects_found
    for effect in effects_found:
        row = effect.parameter
        for ratio, end in ((effect.low, row.low), (effect.high, row.high)):
            assert ratio == model.time(launch, {row.name: end}).microseconds / base


def test_only_unsure_ones_that_matter_and_are_not_set_the_largest_first(
    effects_found: list[Effect],
) -> None:
    sizes = [effect.size for effect in effects_found]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) >= LEAST
    assert {effect.parameter.certainty for effect in effects_found} <= set(UNSURE)
    largest = effects_found[0].parameter
    without = effects(traced(PACKED, SHAPE), {largest.name: largest.value})
    assert largest.name not in {effect.parameter.name for effect in without}


def test_an_arch_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="gfx90a"):
        table("gfx90a")
