"""A replayed trace: no error where hardware keeps the model's rules, else where it breaks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.timing.hardware.assembly import kernel_of
from hk_backend.lab.timing.hardware.assumed import (
    facts,
    in_infinity_cache,
    in_l2,
    loaded_bytes,
    resident,
    steady_loop,
)
from hk_backend.lab.timing.hardware.dispatch import Dispatch, Line, read
from hk_backend.lab.timing.hardware.errors import Errors, Pair, errors
from hk_backend.lab.timing.hardware.replay import Beside, replay
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


def test_a_workgroups_own_data_lie_where_the_caller_says(dispatch: Dispatch) -> None:
    """Here only the store is its own: nobody waits for it."""
    plain = _emulator.TimingParameters(ARCH, MEASURED)
    changes = in_infinity_cache(plain)
    assert changes["hbm_latency"] == plain["infinity_cache_latency"]
    assert changes["hbm"] == plain["infinity_cache"] > plain["hbm"]
    assert resident(dispatch, plain) == changes, "with matrix instructions"
    assert judged(dispatch, **changes).mean_absolute_end == 0
    assert in_l2(plain)["compute_unit_fabric"] == plain["l2"]


def test_small_data_lie_in_the_l2_and_huge_ones_in_no_cache(dispatch: Dispatch) -> None:
    plain = _emulator.TimingParameters(ARCH, MEASURED)
    # steps count lines of the whole listing, so only the text of a line may change
    lines = [Line("s_nop 0", line.pc, line.source) if "mfma" in line.text else line
             for line in dispatch.lines]  # fmt: skip
    small = replace(dispatch, lines=lines)
    loaded = loaded_bytes(small, 256)
    assert loaded == 256 * 4 * TURNS * 1024
    assert resident(small, plain) == in_l2(plain)
    for copies, expected in ((4, in_infinity_cache(plain)), (32, {})):
        assert resident(replace(small, waves=list(small.waves) * copies), plain) == expected


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


def test_the_steady_loop(dispatch: Dispatch) -> None:
    loop = steady_loop(dispatch)
    assert loop
    first, last = (dispatch.lines[number].mnemonic for number in loop)
    assert (first, last) == ("buffer_load_dwordx4", "s_cbranch_scc1")


def test_an_error_is_a_share_of_the_hardwares_clocks() -> None:
    assert Pair(200.0, 150.0).error == -0.25
    assert Pair(0.0, 4.0).error == 0
