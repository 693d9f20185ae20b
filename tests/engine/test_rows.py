"""Which rows are HK's, against a definition that looks at one row at a time; and their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hk_backend.engine.rows import (
    SPECULATIVE,
    Ints,
    RowSplit,
    prefill_tokens,
    select,
    split_rows,
)
from tests.integration.shared.attention.rows import (
    KINDS,
    Row,
)
from tests.integration.shared.attention.split import UNREADABLE, Known

any_rows = st.lists(st.builds(Row, st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=8)


KNOWN = [Known(says, readable=readable) for says in (True, False) for readable in (True, False)]


def split(known: Known, rows: Sequence[Row]) -> RowSplit:
    lengths = np.array([row.length for row in rows], dtype=np.int32)
    prefilling = np.array([row.prefilling for row in rows], dtype=np.bool_)
    said = prefilling if known.says else None
    refusal = "" if known.readable else UNREADABLE
    return split_rows(starts_of(rows), lengths, said, known.drafts, refusal)


def starts_of(rows: Sequence[Row]) -> Ints:
    return np.cumsum([0, *(row.query for row in rows)], dtype=np.int32)


def check(known: Known, rows: Sequence[Row]) -> None:
    found = split(known, rows)
    mine = known.hks(rows)
    hks = [row for row, its in zip(rows, mine, strict=True) if its]
    assert found.mine.tolist() == mine
    theirs = [row.query > 0 and not its for row, its in zip(rows, mine, strict=True)]
    assert found.theirs.tolist() == theirs
    assert found.tokens == sum(row.query for row in hks if row.query > 1)
    assert found.tokens + sum(found.left.values()) == prefill_tokens(starts_of(rows))
    assert found.longest == max((row.query for row in hks), default=0)
    assert found.reads_cache == any(row.cached for row in hks)
    assert set(found.left) <= {SPECULATIVE, UNREADABLE}


@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_every_order_of_every_kind(known: Known) -> None:
    for count in range(5):
        for rows in product(KINDS, repeat=count):
            check(known, rows)


@given(any_rows, st.sampled_from(KNOWN))
def test_any_lengths(rows: list[Row], known: Known) -> None:
    check(known, rows)


@given(any_rows, st.data())
def test_selections(rows: list[Row], data: st.DataObject) -> None:
    """Of rows and of tokens, and back; in place if, and only if, they lie together."""
    chosen = np.array([bool(row.query) and data.draw(st.booleans()) for row in rows], dtype=bool)
    starts = starts_of(rows)
    mine = select(chosen, starts, torch.device("cpu"))
    if mine is None:
        assert not chosen.any()
        return
    is_mine = torch.from_numpy(np.repeat(chosen, np.diff(starts)))
    tokens = torch.arange(int(starts[-1]))
    assert mine.of_tokens(tokens).tolist() == tokens[is_mine].tolist()
    row = torch.tensor([row.query for row in rows])
    taken = mine.of_rows(row)
    assert taken[taken > 0].tolist() == row[torch.from_numpy(chosen)].tolist()
    assert torch.equal(taken, row[mine.on_host])
    assert mine.starts.tolist() == [0, *taken.cumsum(0).tolist()]
    where = tokens[is_mine]
    assert mine.gathered == (int(where[-1] - where[0]) + 1 != len(where))
    out = torch.full((len(tokens), 2), -1)
    room = mine.room(out)
    room[:] = where[:, None]
    mine.put(room, out)
    assert torch.equal(out[:, 0], torch.where(is_mine, tokens, -1))
