"""The statement of layouts.py itself: no two elements share a place, and banks are spread."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiles import layouts


@pytest.mark.parametrize("swizzle", [layouts.SPREAD, layouts.XOR], ids=str)
@pytest.mark.parametrize(
    ("rows", "row_bytes"), [(16, 128), (48, 128), (256, 128), (16, 256), (80, 256), (48, 512)]
)
def test_chunks_do_not_overlap_and_fill_their_blocks(
    swizzle: layouts.Swizzle, rows: int, row_bytes: int
) -> None:
    at = swizzle.places(rows, row_bytes)
    assert len(np.unique(at)) == at.size
    assert (at % 16 == 0).all()
    assert (at % (1024 + swizzle.gap)).max() == 1024 - 16
    assert at.max() + 16 + swizzle.gap == swizzle.tile_bytes(rows, row_bytes)


def test_a_result_block_is_held_once() -> None:
    places = 32 * layouts.result_rows() + layouts.result_columns()
    assert sorted(places.flatten()) == list(range(32 * 32))


@pytest.mark.parametrize("arch", layouts.OPERANDS)
def test_an_operand_is_held_once(arch: str) -> None:
    operand = layouts.OPERANDS[arch]
    places = operand.depth * operand.rows() + operand.depths()
    assert sorted(places.flatten()) == list(range(32 * operand.depth))
