"""Where rows lie: packed tensors and paged caches."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hk_backend.kernels.row_sources import PAGED, block_reciprocal
from tests.tiles.launch import launch

BLOCK_SIZES = [16, 32, 48, 80, 128]
# of csrc: the tensor that grid.hip makes spans of
BASE, BLOCK_STRIDE, ROW_STRIDE = 0x123456789000, 0x30000000, 0x2000

Words = NDArray[np.uint32]


def places(
    kernel: str, rows: list[int], count: int, limit: int, table: NDArray[np.int32], block_size: int
) -> tuple[Words, list[tuple[int, int]]]:
    """[row][block, row, count], and (base, bytes) of each."""
    found, spans = np.empty((len(rows), 3), np.uint32), np.empty((len(rows), 3), np.uint32)
    launch(
        kernel, np.array(rows, np.int32), table, found, spans,
        numbers=[count, block_size, limit, reciprocal(block_size)], grid=len(rows),
    )  # fmt: skip
    return found, [(int(low) + (int(high) << 32), int(size)) for low, high, size in spans]


def reciprocal(block_size: int) -> int:
    """As 32 bits of the argument's signed number."""
    return int(np.uint32(block_reciprocal(PAGED, block_size)).astype(np.int32))


def assert_spans(found: Words, spans: list[tuple[int, int]], blocks: bool) -> None:
    """A span ends with the last row of its place."""
    for (block, row, count), span in zip(found.tolist(), spans, strict=True):
        base = BASE + row * ROW_STRIDE + blocks * block * BLOCK_STRIDE
        assert span == (base, count * ROW_STRIDE)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
@pytest.mark.parametrize("limit", [16, 32])
def test_packed_rows(count: int, limit: int) -> None:
    """Rows past the last are none; the span is never longer than what is left."""
    rows = [*range(0, 64, 16), 976, 992, 1008, 2**20]
    found, spans = places("packed_places", rows, count, limit, np.zeros(1, np.int32), 16)
    wanted = [(0, row, min(max(count - row, 0), limit)) for row in rows]
    assert [tuple(place) for place in found.tolist()] == wanted
    assert_spans(found, spans, blocks=False)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000, 2**20])
def test_paged_rows(block_size: int, count: int) -> None:
    """Groups of 16 rows, in any block of the table. Past the last row none, and no table entry."""
    blocks = -(-count // block_size)
    table = np.random.default_rng(count).permutation(max(blocks, 1)).astype(np.int32)
    edges = [
        0,
        block_size,
        7 * block_size,
        count - count % block_size,
        count,
        count + 64,
        count // 2,
    ]
    rows = sorted({max(edge + by, 0) // 16 * 16 for edge in edges for by in (-16, 0, 16)})
    found, spans = places("paged_places", rows, count, 16, table, block_size)
    for row, (block, within, there) in zip(rows, found.tolist(), strict=True):
        assert there == min(max(count - row, 0), 16)
        if there:
            assert (block, within) == (table[row // block_size], row % block_size)
    assert_spans(found, spans, blocks=True)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_block_index_is_exact(block_size: int) -> None:
    """Of every row up to 2^20, by multiplication with a reciprocal."""
    rows = 2**20
    out = np.empty(rows, np.uint32)
    numbers = [rows, block_size, 0, reciprocal(block_size)]
    launch("block_indices", out, np.zeros(1, np.int32), numbers=numbers)
    np.testing.assert_array_equal(out, np.arange(rows) // block_size)


def test_the_reciprocal_is_exact_for_all_it_claims() -> None:
    """While rows * block_size < 2^38 (types/row_source.hpp): at both ends of every last block."""
    for block_size in range(16, 4096 + 16, 16):
        factor = block_reciprocal(PAGED, block_size)
        blocks = min(2**38 // block_size, 2**31) // block_size
        index = np.unique(np.r_[:2048, blocks - 2048 : blocks].clip(0, blocks - 1))
        for row in (index * block_size, index * block_size + block_size - 1):
            np.testing.assert_array_equal(row // 8 * factor >> 32, index)
