"""How decode's tiles of keys are dealt to workgroups, and how long that takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.decode_plan import FEWEST, deal, key_tiles, microseconds, shares

KERNELS = catalogue("gfx950").families["attention_decode"]
PAGED = catalogue("gfx950").kernel("attention_decode_bf16_d128_paged_r64")
batches = st.lists(st.integers(1, 300), min_size=1, max_size=70)


@given(tiles=batches, shares=st.integers(1, 600), begin=st.integers(1, 7))
def test_every_tile_has_one_workgroup(tiles: list[int], shares: int, begin: int) -> None:
    """The places of all begins and tiles are dealt in equal shares, counted place by place."""
    places = [
        (request, place) for request, count in enumerate(tiles) for place in range(begin + count)
    ]
    used = max(min(len(places) // FEWEST, shares), 1)
    each, more = divmod(len(places), used)
    expected: dict[tuple[int, int], int] = {}
    number = 0
    for share in range(used):
        for request, place in places[number : number + each + (share < more)]:
            if place >= begin:
                expected[share, request] = expected.get((share, request), 0) + 1
        number += each + (share < more)
    found = list(deal(tiles, shares, begin))
    assert {(piece.share, piece.request): piece.tiles for piece in found} == expected
    for request in range(len(tiles)):
        own = [piece for piece in found if piece.request == request]
        assert {piece.parts for piece in own} == {len(own)}
        assert {piece.first_share for piece in own} == {own[0].share}


@pytest.mark.parametrize(
    ("keys", "tokens", "window", "tiles"),
    [
        *[(1, 1, 1000, 1), (32, 1, 1000, 1), (33, 1, 1000, 2), (0, 1, 1000, 1)],
        *[(320, 1, 32, 1), (320, 1, 33, 2), (320, 2, 32, 2), (321, 1, 33, 2)],
    ],
)
def test_tiles_of_a_window(keys: int, tokens: int, window: int, tiles: int) -> None:
    """A row sees `window` keys, its own included; tiles of 32 keys before them are left out."""
    assert PAGED.tile.columns == 32
    assert key_tiles(PAGED, keys, tokens, window) == tiles


@given(
    kernel=st.sampled_from(KERNELS),
    tiles=batches,
    kv_heads=st.sampled_from((1, 3, 8)),
    units=st.sampled_from((32, 256)),
)
def test_twice_the_keys_take_longer(
    kernel: KernelEntry, tiles: list[int], kv_heads: int, units: int
) -> None:
    """Every workgroup has tiles already: fewer keys have fewer workgroups, in about equal time."""
    all_busy = FEWEST * shares(kernel, kv_heads, units)
    short, long = (
        microseconds(kernel, [factor * count for count in tiles], kv_heads, units)
        for factor in (all_busy, 2 * all_busy)
    )
    assert 0 < short < long
