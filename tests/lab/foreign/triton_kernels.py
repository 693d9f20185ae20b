"""Triton kernels of the tests. Types of their arguments are Triton's own."""
# mypy: disable-error-code="misc, no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def dot(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Multiply a [M, k] by the transpose of b [N, k]."""
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    sums = tl.zeros((M, N), tl.float32)
    for at in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + (at + depth)[None, :])
        right = tl.load(b + columns[None, :] * k + (at + depth)[:, None])
        sums = tl.dot(left, right, sums)
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def total(x, out):
    """Add one number of each workgroup to the same place: a race."""
    tl.store(out, tl.load(out) + tl.load(x + tl.program_id(0)))


@triton.autotune(configs=[triton.Config({"REPEAT": repeat}) for repeat in (64, 1, 16)], key=["n"])
@triton.jit
def repeated(x, out, n, REPEAT: tl.constexpr, BLOCK: tl.constexpr):
    """Copy numbers after REPEAT sines of each, of which none is kept."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    spent = value
    for _ in range(REPEAT):
        spent = tl.sin(spent) + n
    tl.store(out + at, tl.where(spent == -n, spent, value), at < n)


@triton.jit
def scalars(out, factor, wide, flag, absent, pair):
    """Store each kind of argument that is no tensor."""
    tl.store(out + 0, factor.to(tl.float64))
    tl.store(out + 1, wide.to(tl.float64))
    tl.store(out + 2, flag.to(tl.float64))
    tl.store(out + 3, pair[0].to(tl.float64))
    tl.store(out + 4, tl.load(pair[1]).to(tl.float64))
    if absent is None:
        tl.store(out + 5, 1.0)


@triton.jit
def described(x, out):
    """Copy a tile through a tensor descriptor."""
    at = tl.arange(0, 16)
    tl.store(out + at[:, None] * 16 + at[None, :], x.load([0, 0]))


@triton.jit
def add_one(addresses, n, BLOCK: tl.constexpr):
    """Add 1 to the floats behind each address; the first workgroup also writes the table's end."""
    memory = tl.load(addresses + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(memory + at, tl.load(memory + at, at < n) + 1, at < n)
    if tl.program_id(0) == 0:
        tl.store(addresses + 2, 7)
