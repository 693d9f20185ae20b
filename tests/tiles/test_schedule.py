"""How waves and instructions take turns."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiles.launch import launch

NOTHING = 2**32 - 1


@pytest.mark.parametrize("waves", [2, 8])
@pytest.mark.parametrize("phases", [1, 2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_ping_pong(waves: int, phases: int, seed: int) -> None:
    """The upper half of the waves is one phase behind the lower, and all pass as many barriers."""
    seen = np.empty((waves, phases), np.uint32)
    counters = launch(
        f"turns_{waves}", seen, numbers=[phases], waves=waves, lds=12 * waves, seed=seed
    )
    setup = 1  # barrier, before the turns
    assert counters.by_mnemonic["s_barrier"] == waves * (setup + phases + 1)
    # One barrier ago: the lower half sees the upper half two phases back, which sees its own.
    lower = [NOTHING, NOTHING, *range(phases)][:phases]
    np.testing.assert_array_equal(seen[: waves // 2], np.tile(lower, (waves // 2, 1)))
    np.testing.assert_array_equal(seen[waves // 2 :], np.tile(range(phases), (waves // 2, 1)))


SPREADS = [(0, 8, 8), (2, 5, 13), (1, 7, 3), (0, 1, 64), (3, 13, 1)]


def test_spread_calls_each_item_once_in_order_and_evenly() -> None:
    out = np.zeros((len(SPREADS), 64, 2), np.uint32)
    launch("spread_all", out)
    for (first, slots, items), found in zip(SPREADS, out, strict=True):
        calls, slot = found.T
        assert (calls[:items] == 1).all()
        assert (calls[items:] == 0).all()
        assert (np.diff(slot[:items].astype(int)) >= 0).all()
        shares = np.bincount(slot[:items], minlength=first + slots)
        assert len(shares) == first + slots
        assert (shares[:first] == 0).all()
        assert shares[first:].max() - shares[first:].min() <= 1


def test_interleave_asks_every_stream_in_every_slot() -> None:
    out = np.full(12, NOTHING, np.uint32)
    launch("interleave_all", out)
    assert out.tolist() == [16 * stream + slot for slot in range(3, 7) for stream in range(3)]
