"""A new matrix instruction is one specialisation of the trait (matrix_shape.hip): the operations
take its shape and place its elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiles import layouts
from tests.tiles.launch import GFX950, errors_of, launch
from tests.tiles.numbers import nans, to_bits

DEPTH = 64


@pytest.mark.parametrize(("dtype", "rows", "columns"), [("bf16", 32, 48), ("f16", 48, 16)])
@pytest.mark.parametrize("depth", [64, 63, 33, 32, 31, 9, 8, 1, 0])
def test_operations_take_another_shape(dtype: str, rows: int, columns: int, depth: int) -> None:
    """Exact on integers, no two lines alike; NaN past the depth."""
    rng = np.random.default_rng(depth)
    values = [rng.integers(-100, 100, (lines, depth)) for lines in (rows, columns)]
    operands = [nans(lines, DEPTH) for lines in (rows, columns)]
    for memory, value in zip(operands, values, strict=True):
        memory[:, :depth] = to_bits(value.astype(np.float32), dtype)
    out = np.empty((rows // 16, columns // 16, 64, 4), np.float32)
    launch(f"multiply_16x16_{dtype}", *operands, out, numbers=[depth])
    wanted = 2.0 * (1 + values[0] @ values[1].T)
    row, column = 4 * (layouts.LANES // 16)[:, None] + np.arange(4), layouts.LANES[:, None] % 16
    for i, j in np.ndindex(out.shape[:2]):
        np.testing.assert_array_equal(out[i, j], wanted[16 * i + row, 16 * j + column])


@pytest.mark.parametrize(
    "product", ["Mma<bf16, f16>", "Mma<bf16, bf16, arch::MmaShape<16, 16, 64>>"]
)
def test_an_instruction_that_the_arch_lacks_is_refused(product: str) -> None:
    text = f'#include "hk/hk.hpp"\nusing namespace hk;\nint rows() {{ return {product}::kRows; }}'
    wanted = "the arch has no matrix instruction of this shape for these elements"
    assert any(wanted in error for error in errors_of(text, GFX950))
