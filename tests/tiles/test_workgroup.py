"""Fragments from LDS, copies to LDS and rings, for each width and element type, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend._emulator import Counters
from tests.tiles import layouts
from tests.tiles.launch import launch
from tests.tiles.numbers import Bits, nans, to_bits, unique_elements

dtypes = pytest.mark.parametrize("dtype", ["bf16", "f16"])
widths = pytest.mark.parametrize("width", [64, 128])
OPERAND = layouts.OPERANDS["gfx950"]
ROWS = 64  # of the tiles that the load kernels read
BANKS = 64  # of 4 bytes


def assert_no_conflict(counters: Counters, instructions: int) -> None:
    """Of the accesses whose phases are published: none takes more than it needs."""
    assert len(counters.lds_phases) >= instructions
    assert all(taken == needed for taken, needed in counters.lds_phases.values())


# --- LDS to fragments ----------------------------------------------------------------------------


@dtypes
@widths
@pytest.mark.parametrize("first_row", [0, 16, 32])
def test_load_along_rows(dtype: str, width: int, first_row: int) -> None:
    """`first_row`: of the reader. No read takes more LDS phases than it needs."""
    tile = unique_elements(2 * ROWS, width)
    image = layouts.image_of(tile)
    out = np.empty((2, width // 16, 64, 8), np.uint16)
    counters = launch(
        f"load_rows_{dtype}_{width}",
        image,
        out,
        numbers=[image.nbytes, first_row],
        lds=image.nbytes,
    )
    for block in range(2):
        for step in range(width // 16):
            rows = first_row + 32 * block + OPERAND.rows()
            wanted = tile[rows, 16 * step + OPERAND.depths()]
            np.testing.assert_array_equal(out[block, step], wanted)
    assert_no_conflict(counters, 2 * width // 16)


@dtypes
@widths
def test_load_down_columns(dtype: str, width: int) -> None:
    """Element e of a lane is 8 * (e / 4) + 4 * half + e % 4 rows down: a result block's order."""
    tile = unique_elements(ROWS, width)
    image = layouts.image_of(tile)
    out, addresses = (
        np.empty((width // 32, ROWS // 16, 64, 8), np.uint16),
        np.empty((64, 2), np.uint32),
    )
    counters = launch(
        f"load_columns_{dtype}_{width}",
        image,
        out,
        addresses,
        numbers=[image.nbytes],
        lds=image.nbytes,
    )
    rows, columns = layouts.result_rows()[:, :8], layouts.result_columns()[:, :8]
    for block in range(width // 32):
        for step in range(ROWS // 16):
            wanted = tile[16 * step + rows, 32 * block + columns]
            np.testing.assert_array_equal(out[block, step], wanted)
    assert set(counters.lds_unmodelled) >= {"ds_read_b64_tr_b16"}
    # No phases of transposed reads are published: as for ds_read_b64, 32 lanes at once.
    for half in addresses.reshape(2, 32, 2):
        for column in half.T:
            banks = (column[:, None] // 4 + np.arange(2)) % BANKS
            assert len(np.unique(banks)) == BANKS


@pytest.mark.parametrize(("dtype", "width"), [("bf16", 64), ("f16", 128)])
def test_a_converted_result_is_the_next_operand(dtype: str, width: int) -> None:
    """As in attention: scores become weights without moving between lanes."""
    rng = np.random.default_rng(3)
    values = rng.integers(-8, 9, (ROWS, width)).astype(np.float32)
    source = rng.integers(-8, 9, (32, 32)).astype(np.float32)
    image = layouts.image_of(to_bits(values, dtype))
    out = np.empty((width // 32, 64, 16), np.float32)
    launch(
        f"product_of_result_{dtype}_{width}", image, layouts.to_lanes(source), out,
        numbers=[image.nbytes], lds=image.nbytes,
    )  # fmt: skip
    found = np.concatenate([layouts.from_lanes(block) for block in out])
    np.testing.assert_array_equal(found, values[:32].T @ source)


# --- global memory to LDS ------------------------------------------------------------------------

COPIES = [
    (64, 64, 1), (64, 64, 2), (48, 128, 3), (64, 64, 4), (64, 128, 4), (80, 128, 5), (96, 64, 6),
    (112, 64, 7), (64, 64, 8), (64, 128, 8), (256, 64, 8),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "width", "waves"), COPIES)
@pytest.mark.parametrize("missing", [0, 1, 15, 16, 17, 33, 10_000])
def test_copy(rows: int, width: int, waves: int, missing: int) -> None:
    """Whole and ragged tiles: zeros past the last row, and the gaps stay as they are."""
    there = max(rows - missing, 0)
    stride = width + 24
    memory = nans(max(there, 1), stride)
    memory[:there, :width] = unique_elements(there, width) + 1
    before = np.full(layouts.tile_bytes(rows, 2 * width) // 2, 0x5555, np.uint16)
    after = before.copy()
    counters = launch(
        f"copy_{rows}_{width}_{waves}", after, memory,
        numbers=[after.nbytes, 2 * stride, there], waves=waves, lds=after.nbytes, seed=missing,
    )  # fmt: skip
    tile = np.zeros((rows, width), np.uint16)
    tile[:there] = memory[:there, :width]
    np.testing.assert_array_equal(after, layouts.image_of(tile, filling=0x5555))
    assert counters.bytes["lds_copy"] == rows * width * 2


def fragments_of(tile: Bits) -> Bits:
    """[lane, step, element] of 32 rows, read along them."""
    steps = tile.shape[1] // OPERAND.depth
    return np.stack(
        [tile[OPERAND.rows(), OPERAND.depth * step + OPERAND.depths()] for step in range(steps)], 1
    )


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_ring_streams_tiles(width: int, tiles: int, seed: int) -> None:
    """Stages are used again and again; what is copied past the last tile is zeros, not memory."""
    memory = unique_elements(tiles * 32, width)
    out = np.empty((tiles, 64, width // 16, 8), np.uint16)
    lds = 3 * layouts.tile_bytes(32, 2 * width)
    launch(f"stream_{width}", memory, out, numbers=[tiles], waves=2, lds=lds, seed=seed)
    for tile in range(tiles):
        np.testing.assert_array_equal(out[tile], fragments_of(memory[32 * tile : 32 * (tile + 1)]))


def test_a_ring_wraps_around() -> None:
    steps, tile = 10, layouts.tile_bytes(16, 128)
    bases, all_of_them = np.empty(steps, np.uint32), np.empty(3, np.uint32)
    launch("ring_bases", bases, all_of_them, numbers=[steps])
    np.testing.assert_array_equal(bases, 1024 + np.arange(steps) % 3 * tile)
    np.testing.assert_array_equal(all_of_them, 1024 + np.arange(3) * tile)
