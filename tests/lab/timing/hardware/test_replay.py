"""A replayed trace: no error where hardware keeps the model's rules, else where it breaks them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.timing.hardware.assembly import kernel_of
from hk_backend.lab.timing.hardware.assumed import in_infinity_cache, steady_loop
from hk_backend.lab.timing.hardware.dispatch import Dispatch, read
from hk_backend.lab.timing.hardware.errors import Errors, Pair, errors
from hk_backend.lab.timing.hardware.replay import Beside, replay
from hk_backend.lab.toolchain import compiler
from tests.lab.timing.hardware.made import ARCH, MEASURED, TURNS


@pytest.fixture(scope="module")
def dispatch(folder: Path) -> Dispatch:
    return read(folder)


def replayed(dispatch: Dispatch, changes: Mapping[str, float]) -> list[Beside]:
    kernel = kernel_of(dispatch.lines, ARCH, compiler.find())
    return list(replay(dispatch, kernel, _emulator.TimingParameters(ARCH, dict(changes))))


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
    own = _emulator.TimingParameters(ARCH, MEASURED)[parameter]
    found = judged(dispatch, **{parameter: own + 100})
    more = {name: pair.model - pair.hardware for name, pair in found.stalls.items()}
    assert max(more, key=lambda name: more[name]) == kind
    assert more[kind] > TURNS * 100 / 2
    assert found.turn
    assert found.turn.error > 0
    assert found.ends.error > 0


def test_a_workgroups_own_data_lie_where_the_caller_says(dispatch: Dispatch) -> None:
    """Here only the store is its own: nobody waits for it."""
    plain = _emulator.TimingParameters(ARCH, MEASURED)
    changes = in_infinity_cache(plain)
    assert changes["hbm_latency"] == plain["infinity_cache_latency"]
    assert changes["hbm"] == plain["infinity_cache"] > plain["hbm"]
    assert judged(dispatch, **changes).mean_absolute_end == 0


def test_the_steady_loop(dispatch: Dispatch) -> None:
    loop = steady_loop(dispatch)
    assert loop
    first, last = (dispatch.lines[number].mnemonic for number in loop)
    assert (first, last) == ("buffer_load_dwordx4", "s_cbranch_scc1")


def test_an_error_is_a_share_of_the_hardwares_clocks() -> None:
    assert Pair(200.0, 150.0).error == -0.25
    assert Pair(0.0, 4.0).error == 0
