"""Triton kernels of the algorithms, tiles and hints that others published figures of.

Their sources are named in `published`. Types of the arguments are Triton's own.
"""
# mypy: disable-error-code="misc, no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attention(
    q, k, v, lse, out,
    q_request, q_head, q_token, q_channel, k_request, k_head, k_token, k_channel,
    v_request, v_head, v_token, v_channel, out_request, out_head, out_token, out_channel,
    SCALE: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, TOKENS: tl.constexpr,
    HEAD_SIZE: tl.constexpr, CAUSAL: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Attention of ROWS queries: first the steps without a mask, then those on the diagonal.

    The scale has the factor that turns powers of e into powers of two. Arguments and their order
    are the source's, since they decide how many registers the compiler takes.
    """
    _positive(q_request, q_head, q_token, q_channel)
    _positive(k_request, k_head, k_token, k_channel)
    _positive(v_request, v_head, v_token, v_channel)
    _positive(out_request, out_head, out_token, out_channel)
    block, head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = block * ROWS + tl.arange(0, ROWS)
    keys = tl.arange(0, KEYS)
    channels = tl.arange(0, HEAD_SIZE)
    steps = tl.cdiv(TOKENS, KEYS)
    if CAUSAL:
        steps = min(steps, tl.cdiv((block + 1) * ROWS, KEYS))
    kv_head = head // (HEADS // KV_HEADS)
    k_at = k + request * k_request + kv_head * k_head
    k_at = k_at + channels[:, None] * k_channel + keys[None, :] * k_token
    v_at = v + request * v_request + kv_head * v_head
    v_at = v_at + keys[:, None] * v_token + channels[None, :] * v_channel
    largest = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    total = tl.full([ROWS], 1.0, dtype=tl.float32)
    sums = tl.zeros([ROWS, HEAD_SIZE], dtype=tl.float32)
    q_at = q + request * q_request + head * q_head
    q_at = q_at + rows[:, None] * q_token + channels[None, :] * q_channel
    query = tl.load(q_at, mask=rows[:, None] < TOKENS, other=0.0)
    masked = 0
    if CAUSAL:
        masked = min(ROWS // KEYS, steps)
    full = steps - masked
    if full > 0:
        sums, total, largest = _attend(
            sums, total, largest, query, k_at, v_at, k_token, v_token, 0, full * KEYS,
            rows, keys, TOKENS, SCALE, False, ROWS, KEYS,
        )  # fmt: skip
    tl.debug_barrier()
    if masked > 0:
        k_at += full * KEYS * k_token
        v_at += full * KEYS * v_token
        sums, total, largest = _attend(
            sums, total, largest, query, k_at, v_at, k_token, v_token, full * KEYS,
            steps * KEYS, rows, keys, TOKENS, SCALE, True, ROWS, KEYS,
        )  # fmt: skip
    sums = sums * (1 / total[:, None])
    log_sum = largest * SCALE + tl.math.log2(total)
    beyond = (block + 1) * ROWS - TOKENS
    lse_at = lse + request * HEADS * TOKENS + head * TOKENS + rows
    inside = tl.full([ROWS, HEAD_SIZE], 1, dtype=tl.int1)
    if beyond > 0:
        tl.store(lse_at, log_sum, mask=tl.arange(0, ROWS) < ROWS - beyond)
        inside = inside & (rows[:, None] < TOKENS)
    else:
        tl.store(lse_at, log_sum)
    out_at = out + request * out_request + head * out_head
    out_at = out_at + rows[:, None] * out_token + channels[None, :] * out_channel
    tl.store(out_at, sums.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _attend(
    sums, total, largest, query, k_at, v_at, k_token, v_token, first, last, rows, keys,
    TOKENS: tl.constexpr, SCALE: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The steps over keys `first` to `last`, each of which rescales what was summed before."""
    for start in range(first, last, KEYS):
        here = start + tl.arange(0, KEYS)
        k = tl.load(k_at, mask=here[None, :] < TOKENS, other=0.0) if MASKED else tl.load(k_at)
        scores = tl.zeros([ROWS, KEYS], dtype=tl.float32)
        if MASKED:
            scores = tl.where(rows[:, None] >= (start + keys)[None, :], scores, float("-inf"))
        scores += tl.dot(query, k)
        now = tl.maximum(largest, tl.max(scores, 1))
        scaled = now * SCALE
        weights = tl.math.exp2(scores * SCALE - scaled[:, None])
        of_step = tl.sum(weights, 1)
        shrink = tl.math.exp2(largest * SCALE - scaled)
        sums = sums * shrink[:, None]
        v = tl.load(v_at, mask=here[:, None] < TOKENS, other=0.0) if MASKED else tl.load(v_at)
        total = total * shrink + of_step
        largest = now
        sums += tl.dot(weights.to(v.type.element_ty), v)
        k_at += KEYS * k_token
        v_at += KEYS * v_token
    return sums, total, largest


@triton.jit
def product(
    a, b, c, m, n, k, a_row, b_column, c_row,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    WORKGROUPS: tl.constexpr, XCDS: tl.constexpr,
):  # fmt: skip
    """c = a @ b by workgroups that go through tiles; both operands have `k` in a row."""
    pid = tl.program_id(0)
    pid = (pid % XCDS) * (WORKGROUPS // XCDS) + pid // XCDS
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    _positive(a_row, b_column, c_row, 1)
    for tile in range(pid, tiles_m * tiles_n, WORKGROUPS):
        row, column = _place(tile, tiles_m, tiles_n, GROUP)
        rows, columns = _whole(row, m, M), _whole(column, n, N)
        depth = tl.arange(0, K)
        a_at = a + rows[:, None] * a_row + depth[None, :]
        b_at = b + depth[:, None] + columns[None, :] * b_column
        sums = tl.zeros((M, N), dtype=tl.float32)
        for _ in range(tl.cdiv(k, K)):
            left = tl.load(tl.multiple_of(a_at, (1, 16)))
            right = tl.load(tl.multiple_of(b_at, (16, 1)))
            sums += tl.dot(left, right)
            a_at += K
            b_at += K
        rows, columns = _whole(row, m, M), _whole(column, n, N)
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        at = c + rows[:, None] * c_row + columns[None, :]
        tl.store(at, sums.to(c.type.element_ty), inside)


@triton.jit
def grouped_product(
    a, b, c, offsets, groups, n, k, a_row, b_group, b_column, c_row,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    WORKGROUPS: tl.constexpr, XCDS: tl.constexpr,
):  # fmt: skip
    """Rows `offsets[g]` to `offsets[g + 1]` of a, times b[g]; each workgroup finds its group."""
    pid = tl.program_id(0)
    pid = (pid % XCDS) * (WORKGROUPS // XCDS) + pid // XCDS
    tiles_n = tl.cdiv(n, N)
    tiles: tl.int32 = 0
    for g in range(groups):
        tiles += tl.cdiv(_rows_of(offsets, g), M) * tiles_n
    _positive(a_row, b_column, c_row, 1)
    for tile in range(pid, tiles, WORKGROUPS):
        group: tl.int32 = 0
        begin: tl.int32 = 0
        seen: tl.int32 = 0
        for g in range(groups):
            after = seen + tl.cdiv(_rows_of(offsets, g), M) * tiles_n
            if tile >= after:
                group = g + 1
                begin = after
            seen = after
        first = tl.load(offsets + group)
        m = _rows_of(offsets, group)
        row, column = _place(tile - begin, tl.cdiv(m, M), tiles_n, GROUP)
        tl.assume(row >= 0)
        tl.assume(column >= 0)
        rows = (row * M + tl.arange(0, M)) % m
        columns = _whole(column, n, N)
        depth = tl.arange(0, K)
        a_at = a + first * a_row + rows[:, None] * a_row + depth[None, :]
        b_at = b + group.to(tl.int64) * b_group + depth[:, None] + columns[None, :] * b_column
        steps = tl.cdiv(k, K)
        tl.assume(steps > 1)
        sums = tl.zeros((M, N), dtype=tl.float32)
        for _ in range(steps):
            left = tl.load(tl.multiple_of(a_at, (1, 16)), cache_modifier=".ca")
            right = tl.load(tl.multiple_of(b_at, (16, 1)), cache_modifier=".ca")
            sums += tl.dot(left, right)
            a_at += K
            b_at += K
        rows = (row * M + tl.arange(0, M)) % m
        columns = _whole(column, n, N)
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        at = c + first * c_row + rows[:, None] * c_row + columns[None, :]
        tl.store(at, sums.to(c.type.element_ty), inside)


@triton.jit
def _positive(x, y, z, w):
    """Tell the compiler that strides are not negative, so that it takes buffer instructions."""
    tl.assume(x >= 0)
    tl.assume(y >= 0)
    tl.assume(z >= 0)
    tl.assume(w >= 0)


@triton.jit
def _place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile: GROUP rows of tiles, column after column."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    size = min(tiles_m - first, GROUP)
    return first + (tile % in_group) % size, (tile % in_group) // size


@triton.jit
def _whole(tile, size, BLOCK: tl.constexpr):
    """Indices of a tile, which the compiler may take for a contiguous piece."""
    at = (tile * BLOCK + tl.arange(0, BLOCK)) % size
    return tl.max_contiguous(tl.multiple_of(at, BLOCK), BLOCK)


@triton.jit
def _rows_of(offsets, group):
    return (tl.load(offsets + group + 1) - tl.load(offsets + group)).to(tl.int32)
