"""A bfloat16 cache in the pairs that the kernels multiply, CPU_ATTN's for AMX.

For many rows it is copied, and the result is bit for bit that of a cache in rows. Few rows read it
where it lies.
"""

from __future__ import annotations

import pytest
import torch

from hk_backend.ops import attention_prefill
from tests.ops.cases import Call, Case, make
from tests.ops.oracle import check, expected

PAIRS = "CPU_ATTN for AMX: K [N/16,D/2,16,2], V [D/16,N/2,16,2], one storage"
ROWS = "HND, two tensors"
AROUND_UNITS = (*range(1, 35), 47, 48, 49, 63, 64, 65, 255, 256, 257, 287, 303, 513)
CASE = Case(
    lengths=tuple((min(3, keys), keys) for keys in AROUND_UNITS),
    num_heads=4,
    num_kv_heads=2,
    dtype=torch.bfloat16,
)
MANY = CASE.but(num_heads=34)
"""Rows of each request, even of one token: more than those that leave a cache in place."""


def numbers(call: Call) -> torch.Tensor:
    """Output and log-sum-exp."""
    out, lse = attention_prefill(**call, return_lse=True)
    return torch.cat([out.flatten().float(), lse.flatten()])


def alike(case: Case) -> Call:
    """Make a call over pairs, and assert that its result is finite and that of one over rows."""
    pairs, rows = (make(case.but(layout=layout)) for layout in (PAIRS, ROWS))
    found = numbers(pairs)
    assert found.isfinite().all()
    assert torch.equal(found.view(torch.int32), numbers(rows).view(torch.int32))
    return pairs


@pytest.mark.parametrize("window", [None, 1, 7, 16, 40, 258])
@pytest.mark.parametrize(("head_size", "block_size"), [(64, 16), (128, 32), (96, 48)])
def test_every_end(head_size: int, block_size: int, window: int | None, isa: str) -> None:
    """Keys and windows that end within sixteen keys and within a pair, beside NaN."""
    changes = {"head_size": head_size, "block_size": block_size, "sliding_window": window}
    alike(MANY.but(**changes))
    check(make(CASE.but(layout=PAIRS, **changes)))


def test_splits(tiny_splits: None, isa: str) -> None:
    """A split begins with a panel, on some levels in the middle of sixteen keys."""
    case = CASE.but(lengths=((3, 300), (0, 40), (1, 131)), num_kv_heads=1, block_size=32)
    check(alike(case.but(num_heads=17)))
    check(make(case.but(num_heads=8, layout=PAIRS)))


@pytest.mark.parametrize(
    ("part", "bad"),
    [("key", torch.nan), ("value", torch.nan), ("value", torch.inf), ("value", -torch.inf)],
)
@pytest.mark.parametrize("token", [0, 46, 47])
def test_a_bad_slot_reaches_only_rows_that_see_it(
    token: int, part: str, bad: float, isa: str
) -> None:
    """One channel of one slot; the rows before it are exact."""
    call = make(CASE.but(lengths=((40, 50), (5, 48)), layout=PAIRS, block_size=16))
    cache = call["paged_kv"]
    block = int(call["block_table"][0, token // 16])
    if part == "key":
        cache.key.tensor[block, 1, 0, 20, token % 16, 1] = bad
    else:
        cache.value.tensor[block, 1, 2, token % 16 // 2, 9, token % 2] = bad
    finite = expected(call).out.isfinite().all(-1)
    assert finite[:, :2].all()
    assert finite[40:].all()
    seen = max(0, token - 10)
    assert finite[:seen].all()
    if part == "value":
        assert not finite[seen:40, 2:].any()
    check(call)
