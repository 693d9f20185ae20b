"""How waves and instructions take turns."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiles.launch import launch

NOTHING = 2**32 - 1


@pytest.mark.parametrize(("turns", "waves"), [("ping_pong", 2), ("ping_pong", 8), ("together", 4)])
@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_waves_keep_step(turns: str, waves: int, steps: int, seed: int) -> None:
    """One barrier each step. With ping-pong the lower half of the waves is then at the end of it,
    and the upper half, of which it sees the first half of the step, in its middle."""
    said = np.empty((waves, steps), np.uint32)
    counters = launch(
        f"{turns}_{waves}", said, numbers=[steps], waves=waves, lds=12 * waves, seed=seed
    )
    assert counters.by_mnemonic["s_barrier"] == waves * steps
    first, second = 2 * np.arange(steps), 2 * np.arange(steps) + 1
    lower = first if turns == "ping_pong" else second
    np.testing.assert_array_equal(said[: waves // 2], np.tile(lower, (waves // 2, 1)))
    np.testing.assert_array_equal(said[waves // 2 :], np.tile(second, (waves // 2, 1)))


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
