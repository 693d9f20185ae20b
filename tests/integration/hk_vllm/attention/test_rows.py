"""Which rows are HK's, against a definition that looks at one row at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hk_vllm.attention.rows import DECODES_BEHIND, RowSplit, prefill_tokens, split_rows
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.hk_vllm.attention.batch import EXTEND
from tests.integration.shared.attention.rows import DECODE, FRESH, FRESH_ONE, PADDING, Row

KINDS = (DECODE, EXTEND, FRESH, FRESH_ONE, PADDING)
UNREADABLE = "a cache that HK cannot read"
rows_strategy = st.lists(st.builds(Row, st.integers(0, 9), st.integers(0, 9)), max_size=8)


def split(rows: list[Row], cache_refusal: str = "") -> RowSplit:
    starts = np.cumsum([0, *(row.query for row in rows)], dtype=np.int32)
    lengths = np.array([row.length for row in rows], dtype=np.int32)
    return split_rows(starts, lengths, cache_refusal)


def hk_rows(rows: list[Row], readable: bool) -> range:
    """The definition: from the first prefill row on, unless a decode row stands behind it."""
    prefills = [i for i, row in enumerate(rows) if row.query > 1]
    if not prefills or any(row.query == 1 and row.cached for row in rows[prefills[0] :]):
        return range(0)
    first = prefills[0]
    extends = [i for i in prefills if rows[i].cached]
    if extends and not readable:
        first = extends[-1] + 1
        if not any(row.query > 1 for row in rows[first:]):
            return range(0)
    last = max(i for i, row in enumerate(rows) if row.query)
    return range(first, last + 1)


def check(rows: list[Row], cache_refusal: str) -> None:
    found = split(rows, cache_refusal)
    expected = hk_rows(rows, readable=not cache_refusal)
    mine = [rows[i] for i in expected]
    prefill = sum(row.query for row in rows if row.query > 1)
    assert range(found.first_row, found.last_row) == expected
    assert found.delegated == (not mine)
    assert found.tokens == sum(row.query for row in mine if row.query > 1)
    assert found.tokens + found.parent_tokens == prefill
    assert bool(found.why) == bool(found.parent_tokens)
    if mine:
        assert found.first_token == sum(row.query for row in rows[: expected.start])
        assert found.last_token == found.first_token + sum(row.query for row in mine)
        assert found.reads_cache == any(row.query > 1 and row.cached for row in mine)


@pytest.mark.parametrize("cache_refusal", ["", UNREADABLE])
def test_every_order_of_every_kind(cache_refusal: str) -> None:
    for count in range(6):
        for rows in product(KINDS, repeat=count):
            check(list(rows), cache_refusal)


@given(rows_strategy, st.sampled_from(["", UNREADABLE]))
def test_any_lengths(rows: list[Row], cache_refusal: str) -> None:
    check(rows, cache_refusal)


def test_reasons() -> None:
    assert split([FRESH, DECODE]).why == DECODES_BEHIND
    assert split([EXTEND, FRESH], UNREADABLE).why == UNREADABLE
    assert split([FRESH, EXTEND], UNREADABLE).why == UNREADABLE
    assert split([DECODE, EXTEND, FRESH]).why == ""


def test_cached_single_tokens_need_the_cache_only_through_an_extend() -> None:
    """A one-token prompt among fresh rows does not make the batch read the cache."""
    assert not split([FRESH, FRESH_ONE, FRESH]).reads_cache
    assert split([FRESH, EXTEND, FRESH_ONE]).reads_cache


def test_prefill_tokens() -> None:
    starts = np.cumsum([0, 1, 5, 0, 1, 3])
    assert prefill_tokens(starts) == 8
