"""The L2 model on two orders of a grid that FlyDSL measured (github.com/ROCm/FlyDSL/pull/919).

One request, 64 heads of d=128, 256 queries a workgroup. Head last: the heads' first queries come
first. Head first: all queries of a head come first.
"""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend import _emulator
from hk_backend.lab.timing.l2 import Operands, hit_rate

HEADS, ROWS, KEY_BYTES = 64, 256, 2 * 2 * 128
LAST, FIRST = False, True


def dealt(tokens: int, head_first: bool, causal: bool = False) -> tuple[Operands, np.ndarray]:
    """The operands of each workgroup, and the number of its keys."""
    tiles = tokens // ROWS
    ids = np.arange(tiles * HEADS)
    head, tile = np.divmod(ids, tiles) if head_first else np.divmod(ids, HEADS)[::-1]
    keys = (tile + 1) * ROWS if causal else np.full(len(ids), tokens)
    return Operands(head, keys * float(KEY_BYTES)), keys


def hits(tokens: int, head_first: bool) -> float:
    return hit_rate(dealt(tokens, head_first)[0], 1, _emulator.TimingParameters("gfx950"))


@pytest.mark.parametrize(("head_first", "measured"), [(LAST, 0.0236), (FIRST, 0.9362)])
def test_what_counters_measured(head_first: bool, measured: float) -> None:
    assert hits(65536, head_first) == pytest.approx(measured, abs=0.03)


def test_head_first_hits_more_often_where_keys_exceed_the_l2() -> None:
    assert hits(16384, FIRST) > 2 * hits(16384, LAST)


def clocks(head_first: bool, causal: bool) -> float:
    keys = dealt(16384, head_first, causal)[1]
    parameters = _emulator.TimingParameters("gfx950", {"workgroup_start": 0})
    return _emulator.schedule(keys.astype(float), 1, parameters).clocks


def test_head_first_is_slower_with_a_causal_mask() -> None:
    """Every XCD gets each eighth tile of a head, so that the last one has most to do.

    FlyDSL measured 7%, with what the L2 gains.
    """
    assert clocks(FIRST, causal=False) == clocks(LAST, causal=False)
    assert 1.07 < clocks(FIRST, causal=True) / clocks(LAST, causal=True) < 1.15


def test_operands_that_fit_are_missed_once_by_each_set_of_readers() -> None:
    parameters = _emulator.TimingParameters("gfx950")
    alone = Operands(np.arange(256), np.full(256, 1024.0))
    shared = Operands(np.zeros(256, np.int64), np.full(256, 1024.0))
    assert hit_rate(alone, 1, parameters) == 0
    assert hit_rate(shared, 1, parameters) == pytest.approx(31 / 32)
