"""Stores of register tiles: the rows and channels that exist are written, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.tiles import layouts
from tests.tiles.launch import GFX950, arches, launch
from tests.tiles.numbers import DTYPES, NAN, randn, to_bits

# --- stores --------------------------------------------------------------------------------------
GUARD = 16  # elements before and after what may be written

stored = pytest.mark.parametrize("dtype", [*DTYPES, "f32"])


def stored_bits(values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    return values.view(np.uint32) if dtype == "f32" else to_bits(values, dtype)


def store(
    kernel: str,
    arch: str,
    dtype: str,
    rows: int,
    stride: int,
    channel: int,
    channels: int,
    end: int,
) -> None:
    """A 32 x 32 block's transpose to rows of `stride` elements, of which `rows` exist."""
    block = randn(32, 32, seed=rows)
    view = ((rows - 1) * stride + end) if rows else 0
    kind, nan = (np.uint32, 0x7FFFFFFF) if dtype == "f32" else (np.uint16, NAN)
    memory = np.full(GUARD + 32 * stride + GUARD, nan, kind)
    size = memory.itemsize
    numbers = [size * stride, size * view, channel, channels, size * GUARD]
    launch(f"{kernel}_{dtype}", layouts.to_lanes(block), memory, numbers=numbers, arch=arch)
    wanted = np.full((32, stride), nan, kind)
    last = min(channel + 32, channels)
    if last > channel:
        wanted[:rows, channel:last] = stored_bits(block.T[:, : last - channel].copy(), dtype)[:rows]
    np.testing.assert_array_equal(memory[GUARD:-GUARD].reshape(32, stride), wanted)
    assert (memory[:GUARD] == nan).all()
    assert (memory[-GUARD:] == nan).all()


@arches
@stored
@pytest.mark.parametrize("rows", [32, 31, 17, 16, 1, 0])
@pytest.mark.parametrize("channel", [0, 32])
def test_store_transposed(arch: str, dtype: str, rows: int, channel: int) -> None:
    """To whole rows: the view ends with the last of them."""
    stride = 72
    store("store", arch, dtype, rows, stride, channel, channel + 32, stride)


@stored
@pytest.mark.parametrize("channels", range(35))
def test_store_transposed_below(dtype: str, channels: int) -> None:
    """Every tail: nothing past the last channel, not even in the last row, where the view ends."""
    for rows in (32, 5, 1, 0):
        store("store_below", GFX950, dtype, rows, 40, 0, min(channels, 32), channels)


@arches
@stored
@pytest.mark.parametrize("channels", [30, 32, 33, 40, 47, 63, 64])
def test_store_transposed_below_at_a_later_block(arch: str, dtype: str, channels: int) -> None:
    store("store_below", arch, dtype, 7, 72, 32, channels, channels)


@arches
@pytest.mark.parametrize("columns", [32, 31, 1, 0])
@pytest.mark.parametrize("stride", [1, 3])
def test_store_column_vector(arch: str, columns: int, stride: int) -> None:
    """One value per column, from the lower half of the wave."""
    values = randn(64)
    memory = np.full(GUARD + 32 * stride + GUARD, np.nan, np.float32)
    numbers = [4 * stride, max(columns - 1, 0) * stride * 4 + 4 * (columns > 0), 0, 0, 4 * GUARD]
    launch("store_column_vector", values, memory, numbers=numbers, arch=arch)
    wanted = np.full_like(memory, np.nan)
    wanted[GUARD : GUARD + columns * stride : stride] = values[:columns]
    np.testing.assert_array_equal(memory, wanted)
