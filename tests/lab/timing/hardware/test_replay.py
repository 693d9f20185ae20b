"""A replayed trace: no error where hardware keeps the model's rules, else where it breaks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.timing.hardware.assembly import kernel_of
from hk_backend.lab.timing.hardware.assumed import facts, steady_loop
from hk_backend.lab.timing.hardware.dispatch import STEP, Dispatch, Launch, Line, Wave, read
from hk_backend.lab.timing.hardware.errors import Errors, Pair, errors
from hk_backend.lab.timing.hardware.replay import (
    Beside,
    active_units,
    first_clock,
    queues,
    replay,
)
from hk_backend.lab.toolchain import compiler
from tests.lab.timing.hardware.made import ARCH, MEASURED, TURNS, WARM


@pytest.fixture(scope="module")
def dispatch(folder: Path) -> Dispatch:
    return read(folder)


def replayed(dispatch: Dispatch, changes: Mapping[str, float]) -> list[Beside]:
    kernel = kernel_of(dispatch.lines, ARCH, compiler.find())
    return list(replay(dispatch, kernel, _emulator.TimingParameters(ARCH, {**WARM, **changes})))


def judged(dispatch: Dispatch, **changes: float) -> Errors:
    besides = replayed(dispatch, {**MEASURED, **changes})
    return errors(besides, dispatch.lines, steady_loop(dispatch))


def test_hardware_by_the_models_rules_has_no_error(dispatch: Dispatch) -> None:
    besides = replayed(dispatch, MEASURED)
    assert len(besides) == 4
    for beside in besides:
        assert np.array_equal(beside.hardware, beside.model)
    found = errors(besides, dispatch.lines, steady_loop(dispatch))
    assert found.turn
    assert found.turn.error == found.mean_absolute_end == 0
    assert all(pair.hardware == pair.model for pair in found.stalls.values())


@pytest.mark.parametrize(
    ("parameter", "kind"),
    [("lds_latency", "lgkmcnt"), ("l2_latency", "vmcnt"), ("barrier_release", "s_barrier")],
)
def test_a_longer_latency_shows_where_waves_wait(
    parameter: str, kind: str, dispatch: Dispatch
) -> None:
    """Other waits hide at most half of it."""
    own = _emulator.TimingParameters(ARCH, {**WARM, **MEASURED})[parameter]
    found = judged(dispatch, **{parameter: own + 100})
    more = {name: pair.model - pair.hardware for name, pair in found.stalls.items()}
    assert max(more, key=lambda name: more[name]) == kind
    assert more[kind] > TURNS * 100 / 2
    assert found.turn
    assert found.turn.error > 0
    assert found.ends.error > 0


def found(*texts: str) -> list[list[int]]:
    lines = [Line(text, 8 * number, "") for number, text in enumerate(texts)]
    rows: list[list[int]] = facts(lines, (0, len(lines) - 1)).tolist()
    return rows


MATRIX = "v_mfma_f32_32x32x16_bf16 v[0:15], v[16:19], v[20:23], v[0:15]"


def test_operands_of_matrix_instructions_are_shared_through_the_lds_only() -> None:
    direct, through, copy, *_ = found(
        "buffer_load_dwordx4 v[16:19], v40, s[8:11], 0 offen",
        "buffer_load_dwordx4 v[24:27], v41, s[8:11], 0 offen",
        "buffer_load_dwordx4 v42, s[8:11], 0 offen lds",
        "ds_write_b128 v43, v[24:27]",
        MATRIX,
    )
    assert direct == [16, 16, 0]
    assert through == copy == [16, 16, 16]


def test_lanes_that_lie_apart() -> None:
    """Rows of a matrix result, and halves of 16 bytes in the LDS."""
    store = "global_store_dwordx2 v[66:67], v[2:3], off"
    assert found(store, MATRIX)[0] == [64, 8, 0]
    assert found(store)[0] == [8, 8, 0]
    assert found("ds_write2_b32 v109, v68, v69 offset1:1")[0] == [4, 1, 0]
    assert found("ds_write_b128 v109, v[68:71]")[0] == [0, 0, 0]


def test_scalar_loads_of_one_line_of_the_cache() -> None:
    """Lines are 64 bytes of what one pair of registers points to."""
    numbers = [row[0] for row in found(
        "s_load_dwordx2 s[4:5], s[0:1], 0x0",
        "s_load_dword s6, s[0:1], 0x3c",
        "s_load_dword s7, s[0:1], 0x40",
        "s_load_dword s7, s[2:3], 0x40",
        "s_load_dword s7, s[0:1], 0x44",
    )]  # fmt: skip
    assert numbers == [0, 0, 1, 2, 1]


def wave(begin: int, end: int) -> Wave:
    steps = np.zeros(1, STEP)
    steps["clock"] = begin
    return Wave(0, 0, 0, begin, end, steps)


def test_workgroups_take_the_place_that_was_free_first() -> None:
    """A place is free once all waves of its workgroup ended, stores and all."""
    workgroups = [[wave(0, 500), wave(0, 900)], [wave(100, 700)], [wave(800, 1000)],
                  [wave(950, 1500)], [wave(960, 2000)]]  # fmt: skip
    queued, gaps = queues(workgroups)
    assert queued == [[0, 3], [1, 2], [4]]
    assert gaps == [0, 0, 100, 50, 0]


def test_a_later_workgroup_waits_for_its_place(dispatch: Dispatch) -> None:
    """Whatever delays one on the model delays the next one, too; its own clocks stay."""
    shift = max(wave.end for wave in dispatch.waves) - min(map(first_clock, dispatch.waves)) + 40
    later = []
    for wave in dispatch.waves:
        steps = wave.steps.copy()
        steps["clock"] += shift
        moved = {"begin": wave.begin + shift, "end": wave.end + shift}
        later.append(replace(wave, steps=steps, **moved))
    twice = replace(dispatch, waves=[*dispatch.waves, *later])
    ends = {latency: np.array([beside.model[-1] for beside in
                               replayed(twice, {**MEASURED, "l2_latency": latency})])
            for latency in (300.0, 900.0)}  # fmt: skip
    first, second = np.split(ends[900.0], 2)
    assert (first > 1.5 * ends[300.0][:4]).all()
    assert second == pytest.approx(first, rel=0.02), "one behind the other, not at once"


def test_the_cus_of_a_launch_share_the_memory(dispatch: Dispatch) -> None:
    plain = _emulator.TimingParameters(ARCH)
    assert active_units(dispatch, plain) == 256
    for units, active in ((3, 24), (32, 256), (40, 256)):
        assert active_units(replace(dispatch, launch=Launch(4, units)), plain) == active


def test_the_steady_loop(dispatch: Dispatch) -> None:
    loop = steady_loop(dispatch)
    assert loop
    first, last = (dispatch.lines[number].mnemonic for number in loop)
    assert (first, last) == ("buffer_load_dwordx4", "s_cbranch_scc1")


def test_an_error_is_a_share_of_the_hardwares_clocks() -> None:
    assert Pair(200.0, 150.0).error == -0.25
    assert Pair(0.0, 4.0).error == 0
