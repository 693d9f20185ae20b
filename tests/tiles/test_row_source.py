"""Where rows lie: packed tensors and paged caches."""

from __future__ import annotations

import numpy as np

from hk_backend.kernels.row_sources import PAGED, block_reciprocal


def test_the_reciprocal_is_exact_for_all_it_claims() -> None:
    """While rows * block_size < 2^38 (types/row_source.hpp): at both ends of every last block."""
    for block_size in range(16, 4096 + 16, 16):
        factor = block_reciprocal(PAGED, block_size)
        blocks = min(2**38 // block_size, 2**31) // block_size
        index = np.unique(np.r_[:2048, blocks - 2048 : blocks].clip(0, blocks - 1))
        for row in (index * block_size, index * block_size + block_size - 1):
            np.testing.assert_array_equal(row // 8 * factor >> 32, index)
