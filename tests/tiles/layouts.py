"""Where tiles lie, stated once more and apart from the headers: lanes, elements, LDS bytes.

Sources: CDNA3 and CDNA4 ISA guides, "Matrix Core lane layouts" (VOP3P-MAI); the drawings of
docs/tile-language.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.tiles.launch import GFX942, GFX950

Indices = NDArray[np.int64]
LANES = np.arange(64)
COLUMN, HALF = LANES % 32, LANES // 32


@dataclass(frozen=True)
class Operand:
    """Of one 32-row matrix instruction: a lane holds `elements` neighbours of one row."""

    elements: int

    @property
    def depth(self) -> int:
        return 2 * self.elements

    def rows(self) -> Indices:  # [lane, element]
        return np.broadcast_to(COLUMN[:, None], (64, self.elements))

    def depths(self) -> Indices:
        return HALF[:, None] * self.elements + np.arange(self.elements)


OPERANDS = {GFX942: Operand(4), GFX950: Operand(8)}


def result_rows() -> Indices:
    """[lane, element] of a 32 x 32 result; its column is the lane's."""
    i = np.arange(16)
    return 8 * (i // 4) + 4 * HALF[:, None] + i % 4


def result_columns() -> Indices:
    return np.broadcast_to(COLUMN[:, None], (64, 16))


def to_lanes(block: NDArray[np.float32]) -> NDArray[np.float32]:
    """A 32 x 32 block as the lanes hold it."""
    return np.ascontiguousarray(block[result_rows(), result_columns()])


def from_lanes(held: NDArray[np.float32]) -> NDArray[np.float32]:
    block = np.empty((32, 32), np.float32)
    block[result_rows(), result_columns()] = held.reshape(64, 16)
    return block


# --- tiles in LDS, by the swizzle of xor_rows.hpp ------------------------------------------------
CHUNK = 16


def element_index(rows: int, columns: int) -> Indices:
    """[row, column] -> 16-bit element of the image."""
    row, chunk = np.arange(rows)[:, None], np.arange(2 * columns // CHUNK)[None, :]
    places = row * 2 * columns + CHUNK * (chunk ^ row // 2 % 8)
    return places.repeat(CHUNK // 2, axis=1) // 2 + np.arange(columns) % (CHUNK // 2)


def image_of(tile: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The LDS bytes of a tile [rows, columns]."""
    image = np.empty(tile.size, np.uint16)
    image[element_index(*tile.shape)] = tile
    return image
