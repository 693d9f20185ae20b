"""Inputs of a gemm kernel for tests, and the result that it should compute, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from hk_backend.kernels import KernelEntry

FORMATS = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
SCALES = ("none", "rows", "columns", "both", "one for all rows")
BLOCK = 128
"""Length, along the depth and across columns, of a block that shares a scale."""


@dataclass(frozen=True)
class Problem:
    """A matrix product: a [m, k] and w [n, k] in a kernel's formats, and a bias [n] or None.

    Each row of a and of w has a float32 scale, or the matrix has None. `a_scale` [1] is a scale of
    all rows. With `b_blocks` [n / 128, k / 128], rounded up, `a_scale` is [m, k / 128].
    """

    a: torch.Tensor
    w: torch.Tensor
    out: torch.dtype = torch.float32
    a_scale: torch.Tensor | None = None
    b_scale: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    b_blocks: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The sizes m, n, k."""
        return self.a.shape[0], self.w.shape[0], self.a.shape[1]

    def exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The exact c in float64, and the same sums over the magnitudes of the terms."""
        factor = torch.ones(1, 1, dtype=torch.float64)
        a, w = self.a.double(), self.w.double()
        if self.b_blocks is not None and self.a_scale is not None:
            a = a * over_blocks(self.a_scale.double(), a.shape, 1)
            w = w * over_blocks(self.b_blocks.double(), w.shape, BLOCK)
        elif self.a_scale is not None:
            factor = factor * self.a_scale.double()[:, None]
        if self.b_scale is not None:
            factor = factor * self.b_scale.double()
        bias = torch.zeros(1) if self.bias is None else self.bias
        value = a @ w.T * factor + bias.double()
        return value, a.abs() @ w.abs().T * factor.abs() + bias.double().abs()


def over_blocks(scales: torch.Tensor, shape: torch.Size, rows: int) -> torch.Tensor:
    """A scale for each element of a matrix, from scales of `rows` rows and 128 columns each."""
    wide = scales.repeat_interleave(rows, 0).repeat_interleave(BLOCK, 1)
    return wide[: shape[0], : shape[1]]


def random_problem(
    entry: KernelEntry,
    shape: tuple[int, int, int],
    out: torch.dtype = torch.float32,
    scales: str = "none",
    bias: torch.dtype | None = None,
    seed: int = 0,
) -> Problem:
    """A problem of normal numbers. Scales have both signs and a few powers of ten, and some are
    zero."""
    (m, n, k), generator = shape, torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator)

    def scale(count: int) -> torch.Tensor:
        values = normal(count) * 10 ** normal(count)
        return torch.where(torch.rand(count, generator=generator) < 0.05, 0.0, values)

    rows = {"rows": m, "both": m, "one for all rows": 1}
    of_a = scale(rows[scales]) if scales in rows else None
    of_b = scale(n) if scales in {"columns", "both"} else None
    blocks = None
    if scales_of_blocks(entry):
        depth = math.ceil(k / BLOCK)
        across = math.ceil(n / BLOCK)
        of_a, blocks = scale(m * depth), scale(across * depth).view(across, depth)
        of_a = of_a.view(depth, m).T if seed % 2 else of_a.view(m, depth)
    return Problem(
        normal(m, k).to(format_of(entry)),
        normal(n, k).to(format_of(entry, "b")),
        out,
        of_a,
        of_b,
        None if bias is None else normal(n).to(bias),
        blocks,
    )


def scales_of_blocks(entry: KernelEntry) -> bool:
    """Whether the kernel scales the products of each 128 numbers along the depth."""
    return entry.facts["scales"] == "blocks"


def in_blocks(problem: Problem) -> Problem:
    """The same problem for a kernel that scales blocks."""
    if problem.b_blocks is not None:
        return problem
    m, n, k = problem.shape
    depth = math.ceil(k / BLOCK)
    of_rows = torch.ones(1) if problem.a_scale is None else problem.a_scale
    blocks = torch.ones(math.ceil(n / BLOCK), depth)
    return replace(
        problem, a_scale=of_rows[:, None].repeat(m // len(of_rows), depth), b_blocks=blocks
    )


def format_of(entry: KernelEntry, operand: str = "a") -> torch.dtype:
    return FORMATS[str(entry.facts[operand])]
