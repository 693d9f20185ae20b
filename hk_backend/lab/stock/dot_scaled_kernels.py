"""The Triton program of `dot_scaled`; it is imported only where Triton is installed."""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(
    x, x_scale, w, w_scale, out, m, n, k,
    X: tl.constexpr, W: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """out = x @ w.T with a scale for each 32 elements of MX; a null `x_scale`: x has none.

    Both operands have `k` in a row, e2m1 two of it in a byte.
    """
    X_BYTES: tl.constexpr = K // 2 if X == "e2m1" else K
    W_BYTES: tl.constexpr = K // 2 if W == "e2m1" else K
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    x_at = x + rows[:, None] * (k * X_BYTES // K) + tl.arange(0, X_BYTES)[None, :]
    w_at = w + columns[:, None] * (k * W_BYTES // K) + tl.arange(0, W_BYTES)[None, :]
    blocks = tl.arange(0, K // 32)
    w_scale_at = w_scale + columns[:, None] * (k // 32) + blocks[None, :]
    inside, within = rows[:, None] < m, columns[:, None] < n
    sums = tl.zeros((M, N), dtype=tl.float32)
    for step in range(k // K):
        left = tl.load(x_at + step * X_BYTES, mask=inside, other=0.0)
        right = tl.load(w_at + step * W_BYTES, mask=within, other=0.0)
        of_right = tl.load(w_scale_at + step * (K // 32), mask=within, other=0)
        of_left = None
        if x_scale is not None:
            x_scale_at = x_scale + rows[:, None] * (k // 32) + blocks[None, :]
            of_left = tl.load(x_scale_at + step * (K // 32), mask=inside, other=0)
        sums = tl.dot_scaled(left, of_left, X, right.T, of_right, W, sums)
    at = out + rows[:, None] * n + columns[None, :]
    tl.store(at, sums.to(out.dtype.element_ty), mask=inside & (columns[None, :] < n))
