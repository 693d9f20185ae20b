"""Launches of the GEMM kernels: C = A B^T."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hk_backend.kernels.catalogue import Family
from hk_backend.kernels.entry import KernelEntry
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_operands import operands_of
from hk_backend.lab.timing.calibration import MATRIX
from hk_backend.lab.timing.family import ModelledFamily
from hk_backend.lab.timing.launch import Launch
from hk_backend.lab.timing.sizes import LONGEST, number, positive
from hk_backend.lab.timing.workloads import buffers

XCDS = 8
"""Number of XCDs over which csrc/include/hk/grid.hpp deals workgroups."""
MX_DEPTH = 256
"""Depth to which rows in an MX format are padded."""
SCALE_BLOCK = 128
"""Side of the square of weights, and number of activations in a row, that share a scale."""


@dataclass(frozen=True)
class Shape:
    """C [m, n] = A [m, k] B [n, k]^T. Raises `ValueError` for sizes that are not positive."""

    m: int
    n: int
    k: int
    splits: int = 1
    """Number of workgroups that share the depth of a tile."""

    def __post_init__(self) -> None:
        positive(m=self.m, n=self.n, k=self.k, splits=self.splits)


def launch(entry: KernelEntry, shape: Shape) -> Launch:
    """Prepares `entry` on `shape`. The operands are zeros: time does not depend on them."""
    m, n, k, splits = shape.m, shape.n, shape.k, shape.splits
    operands = operands_of(entry)
    a_bits, b_bits = operands.bits
    a_row = row_bytes(k, a_bits, operands.activations_are_mx)
    b_row = row_bytes(k, b_bits, operands.weights_are_mx)
    columns = -(-n // entry.tile.columns)
    tiles = -(-m // entry.tile.rows) * columns
    arrived = buffers.zeros((tiles,), np.uint32)
    # Traced are neighbours in both directions, which share what they read. If the depth is split,
    # these are not the last workgroup of their tile; the last workgroups of other tiles join them.
    first = {0, 1, columns, columns + 1}
    last = {tiles - 1 - tile for tile in first if tile < tiles} if splits > 1 else set[int]()
    arrived[list(last)] = splits - 1
    arrays = {
        "a": buffers.zeros(
            (-(-m // 16) * 16 if operands.activations_are_mx else m, a_row), np.uint8
        ),
        "b": buffers.zeros(
            (-(-n // 16) * 16, b_row if operands.weights_are_mx else -(-b_row // 128) * 128),
            np.uint8,
        ),
        "c": buffers.zeros((m, -(-n // 8) * 8), np.uint16),
        "partial": buffers.zeros(
            (tiles * splits if splits > 1 else 1, entry.tile.rows * entry.tile.columns), np.float32
        ),
        "arrived": arrived,
    }
    if operands.activations_are_mx:
        arrays["a_scale"] = scale_words(m, k)
    if operands.weights_are_mx:
        arrays["b_block_scale"] = scale_words(n, k)
    if operands.scales == "blocks":
        steps = -(-k // SCALE_BLOCK)
        arrays["a_scale"] = buffers.zeros((steps, m), np.float32)
        arrays["b_block_scale"] = buffers.zeros((-(-n // SCALE_BLOCK), steps), np.float32)
    numbers = {
        "m": m,
        "n": n,
        "k": k,
        "splits": splits,
        "a_row": a_row * 8 // a_bits,
        "c_row": arrays["c"].shape[1],
        "c_type": 0,
        "bias_type": 0,
        "a_scale_row": 1,  # the scales of 128 columns, where there are any, lie together
        "a_scale_step": m,
    }
    count = tiles * splits
    work = np.ones(count)
    traced = [tile * splits for tile in first - last if tile < tiles]
    if splits > 1:  # the last split of each tile adds the sums of all splits
        ends = [workgroup_of(tile * splits + splits - 1, count) for tile in range(tiles)]
        work[ends] = 2
        traced += [tile * splits + splits - 1 for tile in last]
    samples = sorted({workgroup_of(number, count) for number in traced or [0]})
    moved = m * k * a_bits / 8 + n * k * b_bits / 8 + 2.0 * m * n
    return buffers.launch_of(entry, arrays, numbers, work, samples, 2.0 * m * n * k, moved)


def row_bytes(k: int, bits: int, is_mx: bool) -> int:
    """Bytes of an operand's row: a multiple of 16, or of MX formats `MX_DEPTH` elements."""
    depth = MX_DEPTH if is_mx else 128 // bits
    return -(-k // depth) * depth * bits // 8


def scale_words(rows: int, k: int) -> NDArray[np.uint32]:
    """Scales of zero of an operand in an MX format (csrc/kernels/gemm/mx_scales.hpp)."""
    words: NDArray[np.uint32] = buffers.zeros((-(-rows // 32), -(-k // MX_DEPTH), 64), np.uint32)
    return words


def workgroup_of(tile: int, tiles: int) -> int:
    """The inverse of `neighbours_on_one_xcd` in csrc/include/hk/grid.hpp."""
    if tiles % XCDS:
        return tile
    return tile % (tiles // XCDS) * XCDS + tile // (tiles // XCDS)


def square(size: int) -> Shape:
    """The GEMM with M = N = K = `size`."""
    return Shape(size, size, size)


def small(entry: KernelEntry) -> Shape:
    """One tile of C, so deep that waves with a share of the depth loop."""
    return Shape(entry.tile.rows, entry.tile.columns, 17 * entry.tile.depth)


def parse(entry: KernelEntry, items: Mapping[str, str]) -> tuple[Shape, str]:
    """The shape of these sizes, and the same in words. Raises `ValueError`."""
    m, n, k = (number(items, name, LONGEST) for name in SIZES)
    return Shape(m, n, k), f"m={m}, n={n}, k={k}"


SIZES = ("m", "n", "k")
STANDARD = {"8192x8192x8192": square(8192), "4096x4096x4096": square(4096)}
FEW_ROWS: Mapping[int, Mapping[str, Shape]] = {
    rows: {f"{m}x28672x4096": Shape(m, 28672, 4096)}
    for rows, m in ((128, 512), (64, 128), (32, 16))
}
"""Shapes of GEMM kernels with small tiles, by rows of the tile: gate_up of Llama 3 8B.

M is a number of tokens that such a tile serves."""
SMALL_TILE = 128 * 128


def shapes_of(entry: KernelEntry) -> Mapping[str, Shape]:
    """Shapes, by name, that the catalogue has modelled figures of a kernel for."""
    is_small = entry.tile.rows * entry.tile.columns <= SMALL_TILE
    return FEW_ROWS[entry.tile.rows] if is_small else STANDARD


def serving(alternatives: Family, shape: Shape, compute_units: int) -> tuple[KernelEntry, Shape]:
    """The kernel and the number of splits that the planner chooses."""
    plan = planned(alternatives, shape.m, shape.n, shape.k, compute_units)
    return plan.entry, replace(shape, splits=plan.splits)


FAMILY = ModelledFamily(launch, small, SIZES, parse, shapes_of, serving, MATRIX)
