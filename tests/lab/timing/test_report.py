"""The report of a modelled launch: the clocks of a workgroup, its bound, and its busiest unit. Also
the parameters that its figures depend on, and its picture."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.timing import model
from hk_backend.lab.timing.bound import Bound, Limits, bound, limits
from hk_backend.lab.timing.busiest import IDLE, LAUNCH, Busiest, busiest
from hk_backend.lab.timing.model import Modelled
from hk_backend.lab.timing.picture import KINDS
from hk_backend.lab.timing.sensitivity import LEAST, OF_TRACES, UNSURE, Effect, effects, table
from hk_backend.lab.timing.timeline import SHARED_UNITS, SIMD_UNITS, STEPS, Spans, timeline
from hk_backend.lab.timing.workgroup import Workgroup, longest
from tests.lab.timing.launches import GEMM, MANY, PACKED, modelled, report, traced

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


def test_waits_are_named_by_what_is_slow() -> None:
    launch = LAUNCHES[0]
    base, slow = workgroup(*launch), workgroup(*launch, lds_latency=2000)
    assert slow.wave_clocks.stalls["lds"] > 5 * base.wave_clocks.stalls["lds"]
    slow = workgroup(*launch, infinity_cache_latency=90000, hbm_latency=90000)
    # one wave waits for its copy, the others at the barrier for that wave; the rest is the address
    # path's, behind whose loads a wave stalls before it comes to its wait
    memory = slow.wave_clocks.stalls["vector memory"] + slow.wave_clocks.stalls["barrier"]
    assert memory > 0.7 * slow.wave_clocks.total


# --- which parameters a figure depends on ---------------------------------------------------------


SHAPE = "heads=2/1,tokens=256,causal"


@pytest.fixture(scope="module")
def effects_found() -> list[Effect]:
    """The effects of parameters on the launch of `SHAPE`, with nothing else changed."""
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


def test_what_cannot_matter_is_not_replayed() -> None:
    """Clean lines matter where dirty ones follow them, and `l2_kept` where it decides the hits."""
    launch = traced(PACKED, SHAPE)

    def replayed(**changes: float) -> set[str]:
        said: list[str] = []
        effects(launch, changes, said.append)
        return {line.split()[2].split("=")[0] for line in said}

    clean = {"infinity_cache_clean"}
    found = replayed()
    assert {"infinity_cache_dirty", "l2_kept"} <= found
    assert not found & {*OF_TRACES, *clean, "l2_hits"}
    assert replayed(infinity_cache_dirty=80) - found == clean


def test_an_arch_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="gfx90a"):
        table("gfx90a")


def bound_of(**changes: float) -> tuple[Modelled, Bound, Limits]:
    launch = traced(PACKED, MANY)
    found = model.time(launch, changes)
    group = longest(launch, found)
    return found, bound(found, group.wave_clocks), limits(found, group)


@pytest.mark.parametrize(
    ("changes", "kind", "unit"),
    [
        ({"matrix": 8.0}, "unit", "matrix"),
        ({"vector": 32.0}, "unit", "vector"),
        ({"lds_read_b128": 16.0}, "unit", "lds"),
        ({"lds_latency": 5000}, "latency", None),
        ({"barrier_release": 5000}, "latency", None),
        ({"issue": 80}, "issue", None),
        ({"launch": 10000}, "launch", None),
    ],
    ids=str,
)
def test_what_is_slow_is_the_bound(changes: dict[str, float], kind: str, unit: str | None) -> None:
    modelled, found, _ = bound_of(**changes)
    assert found.kind == kind
    assert unit is None or (found.unit == unit and 0.6 <= found.unit_share <= 1)
    if kind == "launch":
        assert found.launch_share == pytest.approx(10000 / modelled.microseconds)


def test_limits_follow_from_the_parameters() -> None:
    modelled, _, limit = bound_of(hbm=1.5, clock=1.2)
    assert limit.hbm_bytes == 1.5e12
    assert limit.peak_flops == pytest.approx(2.5e15 / 2, rel=0.01)
    assert limit.clocked_flops / limit.peak_flops == pytest.approx(modelled.clock_ghz / 1.2)
    assert modelled.flops_per_second < limit.clocked_flops


# --- the busiest unit -----------------------------------------------------------------------------


SHARES = {"matrix": 0.5, "vector": 0.45, "matrix issue": 0.02, "lds": 0.4, "hbm": 0.1}


def hand_made(units: dict[str, float], **changes: float) -> Modelled:
    """A hand-made result of the timing model: 100 us at 2 GHz, with nothing before the launch."""
    values: dict[str, Any] = {
        "microseconds": 100.0, "stream_microseconds": 100.0, "clock_ghz": 2.0, "clocks": 2e5,
        "flops": 1.0, "bytes": 1.0, "resident": 1, "busy_share": 1.0, "active": 256,
        "parameters": _emulator.TimingParameters("gfx950"),
        "charged": _emulator.TimingParameters("gfx950"), **changes,
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


# --- the picture ----------------------------------------------------------------------------------


def test_a_wave_does_one_thing_at_a_time() -> None:
    found = timeline(report(PACKED, MANY))
    for track in found.tracks:
        cut = [spans.within(found.whole) for spans in track.spans.values()]
        starts = np.concatenate([spans.starts for spans in cut])
        order = np.argsort(starts)
        ends = (starts + np.concatenate([spans.clocks for spans in cut]))[order]
        assert (starts[order][1:] >= ends[:-1] - (0 if track.is_wave else 1)).all()
        assert sum(spans.total for spans in cut) <= found.whole[1] - found.whole[0]


@pytest.mark.parametrize(("kernel", "shape"), [(PACKED, MANY), (GEMM, "m=512,n=512,k=2048")])
def test_steps_of_the_loop_are_shown_closely(kernel: str, shape: str) -> None:
    found = timeline(report(kernel, shape))
    assert found.loop
    assert found.loop[0] <= found.steps[0]
    assert found.steps[-1] < found.loop[1]
    assert len([at for at in found.steps if found.close[0] <= at < found.close[1]]) == STEPS
    assert found.close[0] in found.steps
    assert found.close[1] in found.steps


def test_spans_cut_and_counted() -> None:
    spans = Spans(np.array([0.0, 10, 30]), np.array([5.0, 10, 10]))
    assert spans.total == 25
    cut = spans.within((3, 32))
    assert cut.starts.tolist() == [3, 10, 30]
    assert cut.clocks.tolist() == [2, 10, 2]
    assert spans.by_bin(np.array([0.0, 10, 15, 40])).tolist() == [0.5, 1, 0.6]
    assert Spans(np.array([]), np.array([])).by_bin(np.array([0.0, 1])).tolist() == [0]


def test_everything_that_a_wave_or_a_unit_does_has_one_colour() -> None:
    drawn = Counter(what for kind in KINDS for what in kind.of)
    expected = {("issue", name) for name in _emulator.unit_names()}
    expected |= {("wait", name) for name in _emulator.stall_names()}
    expected |= {("busy", name) for name in (*SIMD_UNITS, *SHARED_UNITS)}
    assert drawn == Counter(expected)
    assert len({kind.color for kind in KINDS}) == len(KINDS)
