"""Tiles of keys and ways to deal a step, counted one row at a time."""

from __future__ import annotations

import pytest

from hk_backend.kernels import attention_plan
from hk_backend.kernels.attention_plan import LaunchSizes, choices
from hk_backend.kernels.costs import Cost

TILE_KEYS = 64


def tiles_seen(step: LaunchSizes, rows: int, shared: bool) -> tuple[int, int]:
    """The most and the fewest tiles of keys up to the last key that a tile of query rows sees."""
    tokens = -(-rows // step.heads_of_tile(shared))
    each = -(-step.tokens // step.requests)
    keys = max(step.longest, each)
    ends = []
    for first in range(0, each, tokens):
        end = keys - each + min(first + tokens, each)
        ends.append(max(-(-end // TILE_KEYS), 1))
    return ends[-1], ends[0]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(("tokens", "longest"), [(256, 0), (256, 4096), (64, 1000), (1024, 1024)])
def test_tiles_of_keys(tokens: int, longest: int, grouped: bool, shared: bool) -> None:
    step = LaunchSizes(tokens, 1, longest, heads=8, kv_heads=2, head_size=128, grouped=grouped)
    for rows in (64, 128, 256):
        assert step.key_tiles(rows, shared) == tiles_seen(step, rows, shared)


def test_keys_are_dealt_to_parts_unless_that_is_excluded() -> None:
    step = LaunchSizes(64, 1, 65536, heads=8, kv_heads=2, head_size=128, grouped=False)
    numbers = [each.parts.number for each in choices(step, 256, (128,))]
    assert numbers[:3] == [1, 2, 4]
    assert [each.parts.number for each in choices(step, 256, (128,), parts=False)] == [1]


@pytest.mark.parametrize(
    ("workgroups", "step"), [(4, 0.5), (5, 0.6), (8, 0.6), (9, 0.9), (12, 0.9)]
)
def test_a_cu_holds_no_more_workgroups_than_there_are(workgroups: int, step: float) -> None:
    """Four CUs hold up to three workgroups each, whose steps take longer the more share a CU."""
    cost = Cost(resident=3, fixed=1.0, alone=0.5, shared=0.3)
    assert attention_plan._makespan(cost, workgroups, 4, 10, 10) == pytest.approx(1.0 + 10 * step)
