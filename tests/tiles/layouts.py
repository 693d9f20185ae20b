"""Where tiles lie, stated once more and apart from the headers: lanes, elements, LDS bytes.

Sources: CDNA3 and CDNA4 ISA guides, "Matrix Core lane layouts" (VOP3P-MAI); the drawings of
docs/tile-language.md.
"""

from __future__ import annotations

from collections.abc import Callable
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


GAP, CHUNK = 64, 16
BLOCK_STRIDE = 1024 + GAP


def spread_rows(rows: int, row_bytes: int) -> Indices:
    """[row, chunk] -> LDS byte: the swizzle that docs/tile-language.md draws."""
    row = np.arange(rows)[:, None]
    chunk = np.arange(row_bytes // CHUNK)[None, :]
    blocks = row_bytes // 64  # that hold 16 rows: 2, 4 or 8
    bit2, bit3 = row // 4 % 2, row // 8 % 2
    mixed = 2 * bit2 + bit3  # the two bits, swapped
    block = row // 16 * blocks + row % blocks
    first = 512 * bit3 if blocks == 8 else 256 * mixed + row % 4 // blocks * row_bytes
    return block * BLOCK_STRIDE + first + (chunk ^ mixed) * CHUNK


def xor_rows(rows: int, row_bytes: int) -> Indices:
    """[row, chunk] -> LDS byte: the swizzle of tests/tiles/xor_rows.hpp."""
    row = np.arange(rows)[:, None]
    chunk = np.arange(row_bytes // CHUNK)[None, :]
    return row * row_bytes + CHUNK * (chunk ^ row // 2 % 8)


@dataclass(frozen=True)
class Swizzle:
    """Where the chunks of a tile lie in LDS."""

    kernels: str
    """What the names of its kernels begin with."""
    places: Callable[[int, int], Indices]
    """(rows, bytes of a row) to [row, chunk] -> LDS byte."""
    gap: int
    """Bytes after each 1024 that hold nothing."""

    def __str__(self) -> str:
        return self.kernels or "spread_"

    def tile_bytes(self, rows: int, row_bytes: int) -> int:
        return rows * row_bytes // 1024 * (1024 + self.gap)

    def element_index(self, rows: int, columns: int) -> Indices:
        """[row, column] -> 16-bit element of the image."""
        bytes_ = self.places(rows, 2 * columns).repeat(CHUNK // 2, axis=1)
        return bytes_ // 2 + np.arange(columns) % (CHUNK // 2)

    def image_of(self, tile: NDArray[np.uint16], filling: int = 0x7FFF) -> NDArray[np.uint16]:
        """The LDS bytes of a tile [rows, columns]; the gaps hold `filling`, a NaN by default."""
        rows, columns = tile.shape
        image = np.full(self.tile_bytes(rows, 2 * columns) // 2, filling, np.uint16)
        image[self.element_index(rows, columns)] = tile
        return image


SPREAD = Swizzle("", spread_rows, GAP)
XOR = Swizzle("xor_", xor_rows, 0)
