"""Any metadata at all: what is consistent is computed, what is not is an error and writes nothing.

An engine's bug must not read or write outside the tensors: the numbers here come from a small
range around the valid ones, so that most generated calls are wrong in one place.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hk_backend.ops import PagedKV, attention_prefill
from tests.ops.cases import Call, int32, nan
from tests.ops.oracle import check
from tests.ops.strategies import generated

TOKENS, KEYS, BLOCKS, BLOCK_SIZE = 10, 14, 4, 4


def consistent_starts(starts: list[int], tokens: int) -> bool:
    return starts[0] >= 0 and starts[-1] <= tokens and all(a <= b for a, b in pairwise(starts))


def consistent_request(queries: int, keys: int, blocks: list[int], causal: bool) -> bool:
    if keys < 0:
        return False
    if queries == 0:
        return True
    needed = -(-keys // BLOCK_SIZE)
    read = blocks[:needed]
    return (
        (keys >= queries or not causal)
        and len(read) == needed
        and all(0 <= block < BLOCKS for block in read)
    )


def base(starts: list[int], causal: bool) -> Call:
    query = torch.randn(TOKENS, 2, 8, generator=torch.Generator().manual_seed(0))
    call: Call = dict.fromkeys(
        ("scale", "sliding_window", "logits_soft_cap", "sinks", "alibi_slopes")
    )
    call |= {"k_scale": 1.0, "v_scale": 1.0}
    return call | {"query": query, "query_start_loc": int32(starts), "causal": causal}


def check_or_refuse(call: Call, consistent: bool, names: tuple[str, ...]) -> None:
    event("consistent" if consistent else "inconsistent")
    if consistent:
        check(call)
        return
    out = nan(*call["query"].shape, dtype=torch.float32)
    with pytest.raises(ValueError, match=rf"^({'|'.join(names)})\[.*expected"):
        attention_prefill(**call, out=out)
    assert out.isnan().all()


@st.composite
def some_starts(draw: DrawFn, requests: int, tokens: int) -> list[int]:
    """Starts of requests: mostly in order and in range, else any small numbers."""
    low, high = draw(st.sampled_from(((0, tokens), (0, tokens), (-1, tokens + 2))))
    starts = draw(st.lists(st.integers(low, high), min_size=requests + 1, max_size=requests + 1))
    return starts if draw(st.integers(0, 3)) == 0 else sorted(starts)


@given(st.data(), st.integers(0, 3), st.booleans())
@generated(examples=400)
def test_packed(data: st.DataObject, requests: int, causal: bool) -> None:
    starts = data.draw(some_starts(requests, TOKENS))
    key_starts = data.draw(some_starts(requests, KEYS))
    call = base(starts, causal)
    call["key"], call["value"] = torch.randn(2, KEYS, 1, 8)
    call["key_start_loc"] = int32(key_starts)
    consistent = consistent_starts(starts, TOKENS) and consistent_starts(key_starts, KEYS)
    check_or_refuse(call, consistent, ("query_start_loc", "key_start_loc"))


@given(st.data(), st.integers(0, 3), st.integers(0, 4), st.booleans())
@generated(examples=400)
def test_paged(data: st.DataObject, requests: int, width: int, causal: bool) -> None:
    starts = data.draw(some_starts(requests, TOKENS))
    wrong = data.draw(st.integers(0, 4)) == 0
    ids = st.integers(-2, BLOCKS + 1) if wrong else st.integers(0, BLOCKS - 1)
    row = st.lists(ids, min_size=width, max_size=width)
    table = data.draw(st.lists(row, min_size=requests, max_size=requests))
    # lengths that suit the queries and the table, and sometimes a little less or more
    lengths = [
        data.draw(st.integers(max(last - first, 0), max(width * BLOCK_SIZE, last - first, 0)))
        + data.draw(st.sampled_from((0, 0, 0, 0, -1, 3, -20)))
        for first, last in pairwise(starts)
    ]
    key, value = torch.randn(2, BLOCKS, 1, BLOCK_SIZE, 8)
    call = base(starts, causal)
    call["paged_kv"] = PagedKV.from_views(key, "B H N D", value, "B H N D")
    call["block_table"] = int32(table) if requests else torch.zeros(0, width, dtype=torch.int32)
    call["block_table"] = call["block_table"].reshape(requests, width)
    call["seq_lens"] = int32(lengths)
    consistent = consistent_starts(starts, TOKENS) and all(
        consistent_request(last - first, length, blocks, causal)
        for (first, last), length, blocks in zip(pairwise(starts), lengths, table, strict=True)
    )
    check_or_refuse(call, consistent, ("query_start_loc", "seq_lens", "block_table"))
