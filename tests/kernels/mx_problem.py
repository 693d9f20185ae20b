"""Inputs of a gemm kernel for MX formats, and the result that it should compute, in float64.

Operands are packed here by the words of csrc/include/hk/args/gemm.hpp, not by the product's own
packer.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from hk_backend import reference
from hk_backend.kernels import KernelEntry
from hk_backend.terms.weight_format import FORMATS

BLOCK = 32
DEPTH = 256
"""Elements of a scale word, in both halves of a wave; rows are padded to a multiple."""
FORMAT_OF = {"e2m1": "mxfp4", "e2m3": "mxfp6_e2m3", "e3m2": "mxfp6_e3m2", "e4m3": "mxfp8"}
NAN = 0xFF
"""The e8m0 code of NaN, and a byte that is NaN in every format that has one."""
ONE = 127
"""The e8m0 code of 1."""


@dataclass(frozen=True)
class Operand:
    """A matrix in an MX format: codes `[rows, k * bits / 8]`, e8m0 scales `[rows, k / 32]`."""

    codes: torch.Tensor
    scales: torch.Tensor
    format: str

    @property
    def values(self) -> torch.Tensor:
        """The exact values, float64 `[rows, k]`."""
        typed = self.codes.view(FORMATS[self.format].dtype)
        return reference.dequantize(typed, self.format, self.scales)

    def packed_codes(self) -> NDArray[np.uint8]:
        """Codes in the kernels' order: zeros past the depth, 0xff in rows that do not exist."""
        rows, bits = self.codes.shape[0], FORMATS[self.format].bits
        own = BLOCK * bits // 8
        blocks = -(-self.codes.shape[1] // (8 * own)) * 8
        out = np.full((-(-rows // 16) * 16 * blocks * own,), NAN, np.uint8)
        padded = np.zeros((rows, blocks * own), np.uint8)
        padded[:, : self.codes.shape[1]] = self.codes.numpy()
        row, block, byte = np.indices((rows, blocks, own))
        group = row // 16 * 16 * blocks * own
        plain = group + (block * own + byte) // 16 * 256 + row % 16 * 16 + byte % 16
        part, half = group + block // 2 * 16 * 2 * own, block % 2
        first = part + half * 256 + row % 16 * 16 + byte
        rest = part + 512 + (half ^ row // 16 % 2) * 128 + row % 16 * 8 + byte - 16
        out[plain if bits != 6 else np.where(byte < 16, first, rest)] = padded.reshape(row.shape)
        return out

    def packed_scales(self) -> NDArray[np.uint8]:
        """Scales in the kernels' order: 1 past the depth, NaN in rows that do not exist."""
        rows, blocks = self.scales.shape
        words = -(-blocks // 8)
        out = np.full((-(-rows // 32) * words * 256,), NAN, np.uint8)
        padded = np.full((rows, words * 8), ONE, np.uint8)
        padded[:, :blocks] = self.scales.numpy()
        row, block = np.indices(padded.shape)
        word = (row // 32 * words + block // 8) * 256
        out[word + block % 2 * 128 + row % 32 * 4 + block % 8 // 2] = padded
        return out


@dataclass(frozen=True)
class MxProblem:
    """A product of operands in MX formats, a [m, k] and w [n, k], and a bias [n] or None.

    `b_scale`: a float32 factor of each row of w, or None.
    """

    a: Operand
    w: Operand
    out: torch.dtype = torch.float32
    b_scale: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes m, n, k."""
        return self.a.codes.shape[0], self.w.codes.shape[0], self.a.scales.shape[1] * BLOCK

    @functools.cached_property
    def _exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        a, w = self.a.values, self.w.values
        factor = torch.ones(1) if self.b_scale is None else self.b_scale
        bias = torch.zeros(1) if self.bias is None else self.bias
        value = a @ w.T * factor.double() + bias.double()
        return value, a.abs() @ w.abs().T * factor.double().abs() + bias.double().abs()

    def exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The exact c in float64, and the same sums over the magnitudes of the terms."""
        return self._exact


@dataclass(frozen=True)
class MxWeightProblem:
    """A product of bf16 a [m, k] and of w [n, k] in an MX format, and a bias [n] or None.

    `b_scale`: a float32 factor of each row of w, or None.
    """

    a: torch.Tensor
    w: Operand
    out: torch.dtype = torch.float32
    b_scale: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes m, n, k."""
        return self.a.shape[0], self.w.codes.shape[0], self.a.shape[1]

    def exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The exact c in float64, and the same sums over the magnitudes of the terms."""
        a, w = self.a.double(), self.w.values
        factor = torch.ones(1) if self.b_scale is None else self.b_scale
        bias = torch.zeros(1) if self.bias is None else self.bias
        value = a @ w.T * factor.double() + bias.double()
        return value, a.abs() @ w.abs().T * factor.double().abs() + bias.double().abs()


def random_weight_problem(
    entry: KernelEntry,
    shape: tuple[int, int, int],
    out: torch.dtype = torch.float32,
    scaled: bool = False,
    bias: torch.dtype | None = None,
    seed: int = 0,
) -> MxWeightProblem:
    """A problem of normal activations, random codes and scales. bf16 has all of these numbers: of
    mxfp8 those times 2^-127 are left out, which may be less than its smallest."""
    (m, n, k), random = shape, torch.Generator().manual_seed(seed)
    format = FORMAT_OF[str(entry.facts["b"])]
    w = random_operand(format, n, k, random)
    return MxWeightProblem(
        torch.randn(m, k, generator=random).bfloat16(),
        replace(w, scales=w.scales.clamp(min=10)) if format == "mxfp8" else w,
        out,
        torch.randn(n, generator=random) if scaled else None,
        None if bias is None else torch.randn(n, generator=random).to(bias),
    )


def formats_of(entry: KernelEntry) -> tuple[str, str]:
    """Formats of the activations and of the weights."""
    return FORMAT_OF[str(entry.facts["a"])], FORMAT_OF[str(entry.facts["b"])]


def random_operand(format: str, rows: int, k: int, random: torch.Generator) -> Operand:
    """Any codes that are numbers; scales from 2^-6 to 2^6, and some of zeros or of 2^-127."""
    facts = FORMATS[format]
    codes = torch.randint(256, (rows, k * facts.bits // 8), generator=random, dtype=torch.uint8)
    if facts.has_nan_code:
        codes = codes.masked_fill(codes & 0x7F == 0x7F, 0x7E)
    scales = torch.randint(ONE - 6, ONE + 7, (rows, k // BLOCK), generator=random).byte()
    least = torch.rand(scales.shape, generator=random) < 0.05
    return Operand(codes, scales.masked_fill(least, 0), format)


def random_problem(
    entry: KernelEntry,
    shape: tuple[int, int, int],
    out: torch.dtype = torch.float32,
    scaled: bool = False,
    bias: torch.dtype | None = None,
    seed: int = 0,
) -> MxProblem:
    """A problem of random codes and scales."""
    (m, n, k), random = shape, torch.Generator().manual_seed(seed)
    a, w = formats_of(entry)
    factors = torch.randn(n, generator=random) if scaled else None
    return MxProblem(
        random_operand(a, m, k, random),
        random_operand(w, n, k, random),
        out,
        factors,
        None if bias is None else torch.randn(n, generator=random).to(bias),
    )


def quantised(values: torch.Tensor, format: str) -> Operand:
    """`values` `[rows, k]` rounded to a format."""
    codes, scales = reference.quantize_mx(values, format)
    return Operand(codes.view(torch.uint8), scales, format)


def steps_of(entry: KernelEntry, k: int) -> int:
    return math.ceil(k / entry.tile.depth)
