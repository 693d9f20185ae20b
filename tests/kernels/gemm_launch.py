"""Launches of the gemm kernels on buffers as the contract (csrc/include/hk/args/gemm.hpp) has them.

    product = launch(entry, Problem(a, w, a_scale=..., out=torch.float16), splits=2)
    assert product.is_right()

Weights are packed here from the contract's words, not by the product's own packer. Every byte that
must not matter holds NaN, and buffers end with the last byte that the contract allows.
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
from hk_backend.lab.toolchain.sample_launch import Sample, run
from tests.kernels.gemm_problem import Problem, in_blocks, scales_of_blocks

TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Of c and of the bias: their numbers in `hk::GemmType`."""
LARGEST_ALONE = 128 * 128
"""Elements of a tile: kernels of larger ones do not split the depth."""
ROUNDING = 2.0**-23  # of a float32 operation, whichever way the matrix unit rounds
DENORMAL = 2.0**-149  # what one may lose where a float32 has no more bits

Arguments = ParamSpec("Arguments")


def can_split(entry: KernelEntry) -> bool:
    return entry.tile.rows * entry.tile.columns <= LARGEST_ALONE


def tiles_of(entry: KernelEntry, m: int, n: int) -> int:
    return math.ceil(m / entry.tile.rows) * math.ceil(n / entry.tile.columns)


def pack(w: torch.Tensor, a: torch.dtype) -> NDArray[np.uint8]:
    """Groups of 16 rows; in each, 16 bytes of every row, then the next 16; zeros past the ends.

    FP8 for 16-bit activations: of each 32 codes first every other 8, then the 8 between them.
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
    """Of each row."""
    size = values.element_size()
    flat = values.contiguous().flatten().view(torch.uint8).numpy()
    return flat.reshape(values.shape[0], values.shape[1] * size)


@dataclass(frozen=True)
class Rows:
    """A matrix whose rows lie `stride` elements apart in a buffer that is NaN elsewhere."""

    buffer: NDArray[np.uint8]
    matrix: torch.Tensor  # a view of it
    stride: int

    @classmethod
    def of(cls, values: torch.Tensor, padding: int, whole_pieces: bool) -> Rows:
        """`padding`: 16 bytes each between rows; `whole_pieces`: the last row ends with such 16."""
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
        """Whether all but the matrix still has the bits of the NaN that was there before."""
        kept = torch.from_numpy(self.buffer.copy()).view(self.matrix.dtype)
        untouched = nans(kept.numel(), kept.dtype)
        places = kept.as_strided(self.matrix.shape, (self.stride, 1))
        places.copy_(untouched.as_strided(self.matrix.shape, (self.stride, 1)))
        return torch.equal(kept.view(torch.uint8), untouched.view(torch.uint8))


def nans(count: int, dtype: torch.dtype) -> torch.Tensor:
    """All bits ones: NaN in every format here, and in whatever part of one is read."""
    return torch.full((count * dtype.itemsize,), 0xFF, dtype=torch.uint8).view(dtype)


def vector(values: torch.Tensor) -> NDArray[np.uint8]:
    """As it lies in memory, allocated up to the 4 bytes that hold its end, NaN there."""
    if values.dim() == 2:
        values = (values.T if values.stride(0) < values.stride(1) else values).flatten()
    size = values.element_size()
    count = -(-values.numel() * size // 4) * 4 // size
    whole = torch.cat([values, nans(count - values.numel(), values.dtype)])
    return whole.view(torch.uint8).numpy()


@dataclass(frozen=True)
class Product:
    """What a launch left in c, and what the emulator says of it."""

    problem: Problem
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
        order: a term takes part in at most k + splits additions, two scalings and the bias's
        addition. Last comes the rounding to c's type.
        """
        return excess(self.c, *self.problem.exact(), self.problem.shape[2] + self.splits + 3)


def excess(
    found: torch.Tensor, wanted: torch.Tensor, magnitude: torch.Tensor, operations: int
) -> float:
    """The largest error in units of what `operations` float32 roundings of each term may lose
    (Higham, Accuracy and Stability, lemma 3.1), and one to the type of `found`, whose largest
    number may be too small."""
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
    """`paddings`: pieces of 16 bytes between the rows of a and of c. `seed`: the waves' order."""
    if scales_of_blocks(entry):
        problem = in_blocks(problem)
    m, n, k = problem.shape
    a = Rows.of(problem.a, paddings[0], whole_pieces=True)
    c = Rows.of(nans(m * n, problem.out).view(m, n), paddings[1], whole_pieces=False)
    tiles = tiles_of(entry, m, n) if splits > 1 else 0
    size = tiles * splits * entry.tile.rows * entry.tile.columns
    arrived = np.zeros(tiles, np.uint32)
    buffers: dict[str, NDArray[Any]] = {
        "a": a.buffer,
        "b": pack(problem.w, problem.a.dtype),
        "c": c.buffer,
        "arrived": arrived,
        "partial": nans(size, torch.float32).view(torch.uint8).numpy(),
    }
    vectors = {
        "a_scale": problem.a_scale,
        "b_scale": problem.b_scale,
        "b_block_scale": problem.b_blocks,
        "bias": problem.bias,
    }
    buffers |= {name: vector(values) for name, values in vectors.items() if values is not None}
    there = {name: buffer for name, buffer in buffers.items() if buffer.size}
    bias_type = torch.float32 if problem.bias is None else problem.bias.dtype
    of_a = problem.a_scale
    if of_a is None or of_a.numel() == 1:
        strides = (0, 0)
    else:
        strides = (of_a.stride(0), of_a.stride(1) if of_a.dim() == 2 else 0)
    numbers: dict[str, int | None] = {
        **dict.fromkeys((*buffers, *vectors)),
        "a_row": a.stride,
        "c_row": c.stride,
        "m": m,
        "n": n,
        "k": k,
        "splits": splits,
        "c_type": TYPES.index(problem.out),
        "bias_type": TYPES.index(bias_type),
        "a_scale_row": strides[0],
        "a_scale_step": strides[1],
    }
    sample = Sample(there, {name: n for name, n in numbers.items() if name not in there})
    report = run(entry, sample, seed)
    return Product(problem, splits, c.matrix, report, c.others_untouched(), arrived)


def _sound(launched: Callable[Arguments, Product]) -> Callable[Arguments, Product]:
    """The same of a shipped kernel: nothing is found, nothing is written but c and the workspace,
    which is left as the next launch wants it."""

    def product(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Product:
        found = launched(*args, **kwargs)
        assert not found.report.findings, found.report.findings[0].message
        assert found.outside_untouched
        assert not found.arrived.any()
        return found

    return product


multiply = _sound(launch)
