"""Fragments from LDS, copies to LDS and rings on both arches, under a swizzle that no kernel uses
(xor_rows.hpp). The proofs of the shipped kernels run them under theirs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiles import layouts
from tests.tiles.launch import arches, launch
from tests.tiles.layouts import image_of
from tests.tiles.numbers import Bits, nans, to_bits, unique_elements

elements = pytest.mark.parametrize(("dtype", "width"), [("bf16", 64), ("f16", 128)])
ROWS = 64  # of the tiles that the load kernels read


@arches
@elements
@pytest.mark.parametrize("first_row", [0, 16, 32])
def test_load_along_rows(arch: str, dtype: str, width: int, first_row: int) -> None:
    """`first_row`: of the reader."""
    tile = unique_elements(2 * ROWS, width)
    image, operand = image_of(tile), layouts.OPERANDS[arch]
    steps = width // operand.depth
    out = np.empty((2, steps, 64, operand.elements), np.uint16)
    launch(
        f"load_rows_{dtype}_{width}", image, out,
        numbers=[image.nbytes, first_row], lds=image.nbytes, arch=arch,
    )  # fmt: skip
    for block in range(2):
        for step in range(steps):
            rows = first_row + 32 * block + operand.rows()
            wanted = tile[rows, operand.depth * step + operand.depths()]
            np.testing.assert_array_equal(out[block, step], wanted)


@elements
def test_load_down_columns(dtype: str, width: int) -> None:
    """Element e of a lane is 8 * (e / 4) + 4 * half + e % 4 rows down: a result block's order."""
    tile = unique_elements(ROWS, width)
    image, addresses = image_of(tile), np.empty((64, 4), np.uint32)
    out = np.empty((width // 32, ROWS // 16, 64, 8), np.uint16)
    counters = launch(
        f"load_columns_{dtype}_{width}", image, out, addresses,
        numbers=[image.nbytes], lds=image.nbytes,
    )  # fmt: skip
    rows, columns = layouts.result_rows()[:, :8], layouts.result_columns()[:, :8]
    for block in range(width // 32):
        for step in range(ROWS // 16):
            wanted = tile[16 * step + rows, 32 * block + columns]
            np.testing.assert_array_equal(out[block, step], wanted)
    assert set(counters.lds_unmodelled) >= {"ds_read_b64_tr_b16"}


@elements
def test_a_converted_result_is_the_next_operand(dtype: str, width: int) -> None:
    """As in attention: scores become weights without moving between lanes."""
    rng = np.random.default_rng(3)
    values = rng.integers(-8, 9, (ROWS, width)).astype(np.float32)
    source = rng.integers(-8, 9, (32, 32)).astype(np.float32)
    image, out = image_of(to_bits(values, dtype)), np.empty((width // 32, 64, 16), np.float32)
    launch(
        f"product_of_result_{dtype}_{width}", image, layouts.to_lanes(source), out,
        numbers=[image.nbytes], lds=image.nbytes,
    )  # fmt: skip
    found = np.concatenate([layouts.from_lanes(block) for block in out])
    np.testing.assert_array_equal(found, values[:32].T @ source)


@arches
@pytest.mark.parametrize(("rows", "width", "waves"), [(64, 64, 1), (64, 128, 8)])
@pytest.mark.parametrize("missing", [0, 1, 15, 16, 17, 33, 10_000])
def test_copy(arch: str, rows: int, width: int, waves: int, missing: int) -> None:
    """Whole and ragged tiles: zeros past the last row."""
    there = max(rows - missing, 0)
    stride = width + 24
    memory = nans(max(there, 1), stride)
    memory[:there, :width] = unique_elements(there, width) + 1
    after = np.full(rows * width, 0x5555, np.uint16)
    counters = launch(
        f"copy_{rows}_{width}_{waves}", after, memory,
        numbers=[after.nbytes, 2 * stride, there], waves=waves, lds=after.nbytes, seed=missing,
        arch=arch,
    )  # fmt: skip
    tile = np.zeros((rows, width), np.uint16)
    tile[:there] = memory[:there, :width]
    np.testing.assert_array_equal(after, image_of(tile))
    assert counters.bytes["lds_copy"] == rows * width * 2


def fragments_of(tile: Bits, operand: layouts.Operand) -> Bits:
    """[lane, step, element] of 32 rows, read along them."""
    steps = tile.shape[1] // operand.depth
    return np.stack(
        [tile[operand.rows(), operand.depth * step + operand.depths()] for step in range(steps)], 1
    )


@arches
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_ring_streams_tiles(arch: str, width: int, tiles: int, seed: int) -> None:
    """Stages are used again and again; what is copied past the last tile is zeros, not memory."""
    memory = unique_elements(tiles * 32, width)
    operand = layouts.OPERANDS[arch]
    out = np.empty((tiles, 64, width // operand.depth, operand.elements), np.uint16)
    launch(
        f"stream_{width}", memory, out, numbers=[tiles], waves=2,
        lds=3 * 32 * 2 * width, arch=arch, seed=seed,
    )  # fmt: skip
    for tile in range(tiles):
        rows = memory[32 * tile : 32 * (tile + 1)]
        np.testing.assert_array_equal(out[tile], fragments_of(rows, operand))
