"""Fragments from LDS, copies to LDS and rings, for each width and element type, against numpy.

All of it under two swizzles: that of the shipped kernels, and one that the tests define
(xor_rows.hpp), which runs on gfx942 too.
"""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend._emulator import Counters
from tests.tiles import layouts
from tests.tiles.launch import GFX942, GFX950, launch
from tests.tiles.layouts import SPREAD, XOR, Swizzle
from tests.tiles.numbers import Bits, nans, to_bits, unique_elements

ELEMENTS = [(dtype, width) for dtype in ("bf16", "f16") for width in (64, 128)]
ELEMENTS += [("bf16", 256)]
XOR_ELEMENTS = [("bf16", 64), ("f16", 128)]
ROW_READS = [
    *((SPREAD, GFX950, *elements) for elements in ELEMENTS),
    *((XOR, arch, *elements) for arch in (GFX942, GFX950) for elements in XOR_ELEMENTS),
]
COLUMN_READS = [
    *((SPREAD, *elements) for elements in ELEMENTS),
    *((XOR, *elements) for elements in XOR_ELEMENTS),
]
ROWS = 64  # of the tiles that the load kernels read
BANKS = 64  # of 4 bytes


def assert_no_conflict(counters: Counters, instructions: int) -> None:
    """Of the accesses whose phases are published: none takes more than it needs."""
    assert len(counters.lds_phases) >= instructions
    assert all(taken == needed for taken, needed in counters.lds_phases.values())


# --- LDS to fragments ----------------------------------------------------------------------------


@pytest.mark.parametrize(("swizzle", "arch", "dtype", "width"), ROW_READS, ids=str)
@pytest.mark.parametrize("first_row", [0, 16, 32])
def test_load_along_rows(
    swizzle: Swizzle, arch: str, dtype: str, width: int, first_row: int
) -> None:
    """`first_row`: of the reader. No read takes more LDS phases than the shipped swizzle needs."""
    tile = unique_elements(2 * ROWS, width)
    image = swizzle.image_of(tile)
    operand = layouts.OPERANDS[arch]
    steps = width // operand.depth
    out = np.empty((2, steps, 64, operand.elements), np.uint16)
    counters = launch(
        f"{swizzle.kernels}load_rows_{dtype}_{width}",
        image,
        out,
        numbers=[image.nbytes, first_row],
        lds=image.nbytes,
        arch=arch,
    )
    for block in range(2):
        for step in range(steps):
            rows = first_row + 32 * block + operand.rows()
            wanted = tile[rows, operand.depth * step + operand.depths()]
            np.testing.assert_array_equal(out[block, step], wanted)
    if swizzle is SPREAD:
        assert_no_conflict(counters, 2 * steps)


@pytest.mark.parametrize(("swizzle", "dtype", "width"), COLUMN_READS, ids=str)
def test_load_down_columns(swizzle: Swizzle, dtype: str, width: int) -> None:
    """Element e of a lane is 8 * (e / 4) + 4 * half + e % 4 rows down: a result block's order."""
    tile = unique_elements(ROWS, width)
    image = swizzle.image_of(tile)
    out = np.empty((width // 32, ROWS // 16, 64, 8), np.uint16)
    addresses = np.empty((64, 2 if swizzle is SPREAD else 4), np.uint32)
    counters = launch(
        f"{swizzle.kernels}load_columns_{dtype}_{width}",
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
    if swizzle is SPREAD:
        # No phases of transposed reads are published: as for ds_read_b64, 32 lanes at once.
        for half in addresses.reshape(2, 32, 2):
            for column in half.T:
                banks = (column[:, None] // 4 + np.arange(2)) % BANKS
                assert len(np.unique(banks)) == BANKS


@pytest.mark.parametrize("swizzle", [SPREAD, XOR], ids=str)
@pytest.mark.parametrize(("dtype", "width"), XOR_ELEMENTS)
def test_a_converted_result_is_the_next_operand(swizzle: Swizzle, dtype: str, width: int) -> None:
    """As in attention: scores become weights without moving between lanes."""
    rng = np.random.default_rng(3)
    values = rng.integers(-8, 9, (ROWS, width)).astype(np.float32)
    source = rng.integers(-8, 9, (32, 32)).astype(np.float32)
    image = swizzle.image_of(to_bits(values, dtype))
    out = np.empty((width // 32, 64, 16), np.float32)
    launch(
        f"{swizzle.kernels}product_of_result_{dtype}_{width}", image, layouts.to_lanes(source), out,
        numbers=[image.nbytes], lds=image.nbytes,
    )  # fmt: skip
    found = np.concatenate([layouts.from_lanes(block) for block in out])
    np.testing.assert_array_equal(found, values[:32].T @ source)


# --- global memory to LDS ------------------------------------------------------------------------

SHAPES = [
    (64, 64, 1), (64, 64, 2), (48, 128, 3), (64, 64, 4), (64, 128, 4), (80, 128, 5), (96, 64, 6),
    (112, 64, 7), (64, 64, 8), (64, 128, 8), (256, 64, 8), (32, 256, 1), (32, 256, 4),
]  # fmt: skip
COPIES = [
    *((SPREAD, GFX950, *shape) for shape in SHAPES),
    *((XOR, arch, *shape) for arch in (GFX942, GFX950) for shape in ((64, 64, 1), (64, 128, 8))),
]


@pytest.mark.parametrize(("swizzle", "arch", "rows", "width", "waves"), COPIES, ids=str)
@pytest.mark.parametrize("missing", [0, 1, 15, 16, 17, 33, 10_000])
def test_copy(swizzle: Swizzle, arch: str, rows: int, width: int, waves: int, missing: int) -> None:
    """Whole and ragged tiles: zeros past the last row, and the gaps stay as they are."""
    there = max(rows - missing, 0)
    stride = width + 24
    memory = nans(max(there, 1), stride)
    memory[:there, :width] = unique_elements(there, width) + 1
    before = np.full(swizzle.tile_bytes(rows, 2 * width) // 2, 0x5555, np.uint16)
    after = before.copy()
    counters = launch(
        f"{swizzle.kernels}copy_{rows}_{width}_{waves}", after, memory,
        numbers=[after.nbytes, 2 * stride, there], waves=waves, lds=after.nbytes, seed=missing,
        arch=arch,
    )  # fmt: skip
    tile = np.zeros((rows, width), np.uint16)
    tile[:there] = memory[:there, :width]
    np.testing.assert_array_equal(after, swizzle.image_of(tile, filling=0x5555))
    assert counters.bytes["lds_copy"] == rows * width * 2


def fragments_of(tile: Bits, operand: layouts.Operand) -> Bits:
    """[lane, step, element] of 32 rows, read along them."""
    steps = tile.shape[1] // operand.depth
    return np.stack(
        [tile[operand.rows(), operand.depth * step + operand.depths()] for step in range(steps)], 1
    )


@pytest.mark.parametrize(
    ("swizzle", "arch"), [(SPREAD, GFX950), (XOR, GFX942), (XOR, GFX950)], ids=str
)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_ring_streams_tiles(
    swizzle: Swizzle, arch: str, width: int, tiles: int, seed: int
) -> None:
    """Stages are used again and again; what is copied past the last tile is zeros, not memory."""
    memory = unique_elements(tiles * 32, width)
    operand = layouts.OPERANDS[arch]
    out = np.empty((tiles, 64, width // operand.depth, operand.elements), np.uint16)
    launch(
        f"{swizzle.kernels}stream_{width}", memory, out, numbers=[tiles], waves=2,
        lds=3 * swizzle.tile_bytes(32, 2 * width), arch=arch, seed=seed,
    )  # fmt: skip
    for tile in range(tiles):
        rows = memory[32 * tile : 32 * (tile + 1)]
        np.testing.assert_array_equal(out[tile], fragments_of(rows, operand))


def test_a_ring_wraps_around() -> None:
    steps, tile = 10, SPREAD.tile_bytes(16, 128)
    bases, all_of_them = np.empty(steps, np.uint32), np.empty(3, np.uint32)
    launch("ring_bases", bases, all_of_them, numbers=[steps])
    np.testing.assert_array_equal(bases, 1024 + np.arange(steps) % 3 * tile)
    np.testing.assert_array_equal(all_of_them, 1024 + np.arange(3) * tile)
