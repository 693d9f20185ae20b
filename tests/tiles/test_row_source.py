"""Where rows lie: packed tensors and paged caches."""

from __future__ import annotations

import numpy as np
import pytest

from hk_backend.kernels.row_sources import PAGED, block_reciprocal
from tests.tiles.launch import launch

BLOCK_SIZES = [16, 32, 48, 80, 128]


def reciprocal(block_size: int) -> int:
    """As 32 bits of the argument's signed number."""
    return int(np.uint32(block_reciprocal(PAGED, block_size)).astype(np.int32))


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
