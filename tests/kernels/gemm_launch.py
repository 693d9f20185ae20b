"""Launches of the gemm kernels on buffers that follow csrc/include/hk/args/gemm.hpp.

    product = launch(entry, Problem(a, w, a_scale=..., out=torch.float16), splits=2)
    assert product.is_right()

Weights are packed here by the words of that file, not by the product's own packer. Every byte that
must not matter holds NaN, and buffers end with the last allowed byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend.kernels import KernelEntry
from tests.kernels.emulated import run
from tests.kernels.gemm_problem import Problem, in_blocks, scales_of_blocks
from tests.kernels.mx_problem import MxProblem, MxWeightProblem

TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Types of c and of the bias, each at its number in `hk::GemmType`."""
LARGEST_ALONE = 128 * 128
"""Most elements of a tile whose kernel splits the depth."""
ROUNDING = 2.0**-23  # relative error of a float32 operation, rounded either way
DENORMAL = 2.0**-149  # absolute error of an operation with a denormal float32 result

Arguments = ParamSpec("Arguments")


def can_split(entry: KernelEntry) -> bool:
    return entry.tile.rows * entry.tile.columns <= LARGEST_ALONE


def tiles_of(entry: KernelEntry, m: int, n: int) -> int:
    return math.ceil(m / entry.tile.rows) * math.ceil(n / entry.tile.columns)


def pack(w: torch.Tensor, a: torch.dtype) -> NDArray[np.uint8]:
    """A packed weight: groups of 16 rows; in each, 16 bytes of every row, then the next 16; zeros
    past the ends.

    With FP8 weights and 16-bit activations, each 32 codes are reordered: first every other 8, then
    the 8 between them.
    """
    rows = bytes_of(w)
    n, length = rows.shape
    padded = np.zeros((-(-n // 16) * 16, -(-length // 128) * 128), np.uint8)
    padded[:n, :length] = rows
    if w.element_size() < a.itemsize:
        place = np.arange(padded.shape[1])
        half, part = place % 32 // 16, place % 16 // 8
        padded = padded[:, place // 32 * 32 + 16 * part + 8 * half + place % 8]
    pieces = padded.reshape(padded.shape[0] // 16, 16, padded.shape[1] // 16, 16)
    return np.ascontiguousarray(pieces.swapaxes(1, 2)).reshape(-1)


def bytes_of(values: torch.Tensor) -> NDArray[np.uint8]:
    """The bytes of each row."""
    size = values.element_size()
    flat = values.contiguous().flatten().view(torch.uint8).numpy()
    return flat.reshape(values.shape[0], values.shape[1] * size)


@dataclass(frozen=True)
class Rows:
    """A matrix whose rows lie `stride` elements apart in a buffer; the rest of the buffer is
    NaN."""

    buffer: NDArray[np.uint8]
    matrix: torch.Tensor  # a view of it
    stride: int

    @classmethod
    def of(cls, values: torch.Tensor, padding: int, whole_pieces: bool) -> Rows:
        """A buffer for `values`. `padding`: the number of 16-byte pieces between rows.
        `whole_pieces`: the last row ends with a whole piece of 16 bytes, too."""
        (rows, length), size = values.shape, values.element_size()
        whole = -(-length * size // 16) * 16
        stride = whole + 16 * padding
        end = whole if whole_pieces else length * size
        count = max(rows - 1, 0) * stride + end if length else 0
        buffer = nans(count // size, values.dtype)
        matrix = buffer.as_strided((rows, length), (stride // size, 1))
        matrix.copy_(values)
        return cls(buffer.view(torch.uint8).numpy(), matrix, stride // size)

    def others_untouched(self) -> bool:
        """Whether all bytes outside of the matrix still have the bits of the original NaN."""
        kept = torch.from_numpy(self.buffer.copy()).view(self.matrix.dtype)
        untouched = nans(kept.numel(), kept.dtype)
        places = kept.as_strided(self.matrix.shape, (self.stride, 1))
        places.copy_(untouched.as_strided(self.matrix.shape, (self.stride, 1)))
        return torch.equal(kept.view(torch.uint8), untouched.view(torch.uint8))


def nans(count: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with all bits set: NaN in every format here, and in any part of an element."""
    return torch.full((count * dtype.itemsize,), 0xFF, dtype=torch.uint8).view(dtype)


def vector(values: torch.Tensor) -> NDArray[np.uint8]:
    """The bytes of `values` in memory, up to the 4 bytes that hold the end, with NaN after the
    end."""
    if values.dim() == 2:
        values = (values.T if values.stride(0) < values.stride(1) else values).flatten()
    size = values.element_size()
    count = -(-values.numel() * size // 4) * 4 // size
    whole = torch.cat([values, nans(count - values.numel(), values.dtype)])
    return whole.view(torch.uint8).numpy()


@dataclass(frozen=True)
class Product:
    """The contents of c after a launch, and the emulator's report of it."""

    problem: Problem | MxProblem | MxWeightProblem
    splits: int
    c: torch.Tensor
    report: Any
    outside_untouched: bool
    arrived: NDArray[np.uint32]

    def is_right(self) -> bool:
        """Whether every element lies within its bound."""
        return self.excess() <= 1

    def excess(self) -> float:
        """The largest error in units of its bound; infinite for a NaN or a wrong infinity.

        The bound is of k products, exact in float32, and then as many float32 operations in any
        order. A term takes part in at most k + splits additions, two scalings and the bias's
        addition. Last comes the rounding to c's type.
        """
        return excess(self.c, *self.problem.exact(), self.problem.shape[2] + self.splits + 3)


def excess(
    found: torch.Tensor, wanted: torch.Tensor, magnitude: torch.Tensor, operations: int
) -> float:
    """The largest error in units of what rounding may lose; infinite for a NaN.

    Each term may go through `operations` float32 roundings (Higham, Accuracy and Stability, lemma
    3.1). One more rounding is to the type of `found`, whose largest number may be too small for the
    value.
    """
    if not found.numel():
        return 0.0
    lost = operations * ROUNDING / (1 - operations * ROUNDING) * magnitude + operations * DENORMAL
    kind = torch.finfo(found.dtype)
    rounded = kind.eps / 2 * (wanted.abs() + lost) + kind.smallest_normal * kind.eps / 2
    ratio = (found.double() - wanted).abs() / (lost + rounded)
    overflows = found.isinf() & (found.sign() == wanted.sign())
    allowed = overflows & (wanted.abs() + lost + rounded >= kind.max)
    return float(torch.where(allowed, 0.0, ratio).nan_to_num(nan=math.inf, posinf=math.inf).max())


def launch(
    entry: KernelEntry,
    problem: Problem,
    paddings: Sequence[int] = (0, 0),
    splits: int = 1,
    seed: int = 0,
) -> Product:
    """Launches `entry` on `problem`. `paddings`: pieces of 16 bytes between the rows of a and of c.
    `seed`: the order of the waves."""
    if scales_of_blocks(entry):
        problem = in_blocks(problem)
    a = Rows.of(problem.a, paddings[0], whole_pieces=True)
    of_a = problem.a_scale
    strides = {"a_row": a.stride, "a_scale_row": 0, "a_scale_step": 0}
    if of_a is not None and of_a.numel() > 1:
        strides["a_scale_row"] = of_a.stride(0)
        strides["a_scale_step"] = of_a.stride(1) if of_a.dim() == 2 else 0
    operands: dict[str, NDArray[Any]] = {"a": a.buffer, "b": pack(problem.w, problem.a.dtype)}
    scales = {"a_scale": of_a, "b_block_scale": problem.b_blocks}
    operands |= {name: vector(values) for name, values in scales.items() if values is not None}
    return _run(entry, problem, operands, strides, paddings[1], splits, seed)


def launch_mx(
    entry: KernelEntry, problem: MxProblem, padding: int = 0, splits: int = 1, seed: int = 0
) -> Product:
    """Launches a kernel for MX formats. `padding`: pieces of 16 bytes between the rows of c."""
    operands: dict[str, NDArray[Any]] = {
        "a": problem.a.packed_codes(),
        "b": problem.w.packed_codes(),
        "a_scale": problem.a.packed_scales(),
        "b_block_scale": problem.w.packed_scales(),
    }
    unused = dict.fromkeys(("a_row", "a_scale_row", "a_scale_step"), 0)
    return _run(entry, problem, operands, unused, padding, splits, seed)


def launch_mx_weights(
    entry: KernelEntry,
    problem: MxWeightProblem,
    paddings: Sequence[int] = (0, 0),
    splits: int = 1,
    seed: int = 0,
) -> Product:
    """Launches a kernel for weights alone in an MX format. `paddings`: as `launch` has them."""
    a = Rows.of(problem.a, paddings[0], whole_pieces=True)
    operands: dict[str, NDArray[Any]] = {
        "a": a.buffer,
        "b": problem.w.packed_codes(),
        "b_block_scale": problem.w.packed_scales(),
    }
    strides = {"a_row": a.stride, "a_scale_row": 0, "a_scale_step": 0}
    return _run(entry, problem, operands, strides, paddings[1], splits, seed)


def _run(
    entry: KernelEntry,
    problem: Problem | MxProblem | MxWeightProblem,
    operands: dict[str, NDArray[Any]],
    strides: dict[str, int],
    padding: int,
    splits: int,
    seed: int,
) -> Product:
    """Launches `entry` with operands in its form. `padding`: between the rows of c."""
    m, n, k = problem.shape
    c = Rows.of(nans(m * n, problem.out).view(m, n), padding, whole_pieces=False)
    tiles = tiles_of(entry, m, n) if splits > 1 else 0
    size = tiles * splits * entry.tile.rows * entry.tile.columns
    arrived = np.zeros(tiles, np.uint32)
    buffers = {
        **operands,
        "c": c.buffer,
        "arrived": arrived,
        "partial": nans(size, torch.float32).view(torch.uint8).numpy(),
    }
    vectors = {"b_scale": problem.b_scale, "bias": problem.bias}
    buffers |= {name: vector(values) for name, values in vectors.items() if values is not None}
    there = {name: buffer for name, buffer in buffers.items() if buffer.size}
    bias_type = torch.float32 if problem.bias is None else problem.bias.dtype
    numbers: dict[str, int | None] = {
        **dict.fromkeys((*buffers, *vectors, "a_scale", "b_block_scale")),
        **strides,
        "c_row": c.stride,
        "m": m,
        "n": n,
        "k": k,
        "splits": splits,
        "c_type": TYPES.index(problem.out),
        "bias_type": TYPES.index(bias_type),
    }
    others = {name: number for name, number in numbers.items() if name not in there}
    report = run(entry, there, others, seed)
    return Product(problem, splits, c.matrix, report, c.others_untouched(), arrived)


def _sound(launched: Callable[Arguments, Product]) -> Callable[Arguments, Product]:
    """The same launch, with checks of a shipped kernel: no findings, and nothing written outside of
    c and the workspace. The workspace is left as the next launch needs it."""

    def product(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Product:
        found = launched(*args, **kwargs)
        assert not found.report.findings, found.report.findings[0].message
        assert found.outside_untouched
        assert not found.arrived.any()
        return found

    return product


multiply = _sound(launch)
multiply_mx = _sound(launch_mx)
multiply_mx_weights = _sound(launch_mx_weights)
