"""The choice of HK's rows of a batch, against a definition that looks at one row at a time.

Also the tensors of those rows, and the proof of a cache's form, which leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hk_backend.engine import cache_proof
from hk_backend.engine.cache_proof import UnknownCacheForm, prove
from hk_backend.engine.rows import (
    SPECULATIVE,
    Ints,
    RowSplit,
    prefill_tokens,
    select,
    split_rows,
)
from hk_backend.ops import PagedKV
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
    others = [row.query > 0 and not its for row, its in zip(rows, mine, strict=True)]
    assert found.others.tolist() == others
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
    """Rows and tokens are selected and put back, without a copy only if they lie together."""
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
    room = mine.output_for(out)
    room[:] = where[:, None]
    mine.scatter(room, out)
    assert torch.equal(out[:, 0], torch.where(is_mine, tokens, -1))


BLOCKS, BLOCK_SIZE, HEADS, SIZE = 3, 8, 8, 16
SCALES = [1e-3, 0.005, 1.0, 20.0]
"""Scales of a checkpoint: the largest magnitude divided by 448, far below 1 for values."""


@pytest.fixture(autouse=True)
def unproven(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cache_proof, "_proven", set())
    return


class Cache:
    """A cache `[2, blocks, tokens, heads, channels]`, written the way an engine writes it."""

    def __init__(self, dtype: torch.dtype, scales: tuple[float, float] = (1.0, 1.0)) -> None:
        shape = (2, BLOCKS, BLOCK_SIZE, HEADS, SIZE)
        self.pages = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        self.scales = scales
        self.writes = 0

    def write(self, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        self.writes += 1
        for pages, new, scale in zip(self.pages, (key, value), self.scales, strict=True):
            stored = torch.uint8 if pages.itemsize == 1 else pages.dtype
            flat = pages.view(-1, HEADS, SIZE).view(stored)
            divided = new if scale == 1.0 else new.float() / scale
            flat[slots] = divided.to(pages.dtype).view(flat.dtype)

    def prove(self, layout: str = "B N H D", dtype: torch.dtype = torch.bfloat16) -> None:
        paged = PagedKV.from_views(self.pages[0], layout, self.pages[1], layout)
        scales = torch.tensor([self.scales[0]]), self.scales[1]
        prove(paged, dtype, scales, list(self.pages[:, 0]), self.write, (layout, paged.dtype))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("k_scale", SCALES)
@pytest.mark.parametrize("v_scale", SCALES)
def test_scales_of_any_size(dtype: torch.dtype, k_scale: float, v_scale: float) -> None:
    Cache(dtype, (k_scale, v_scale)).prove()


@pytest.mark.parametrize("wrong", [0.5, 0.98, 1.02, 2.0])
@pytest.mark.parametrize("scale", SCALES)
def test_a_writer_with_another_scale(scale: float, wrong: float) -> None:
    cache = Cache(torch.float8_e4m3fn, (scale, scale))
    write = cache.write

    def other(key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
        write(key * wrong, value, slots)

    cache.write = other  # type: ignore[method-assign]
    with pytest.raises(UnknownCacheForm, match="written keys read back differ"):
        cache.prove()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_another_layout(dtype: torch.dtype) -> None:
    """A cache with heads and tokens exchanged."""
    cache = Cache(dtype)
    with pytest.raises(UnknownCacheForm, match="written keys read back differ"):
        cache.prove("B H N D")


def test_it_leaves_nothing_behind_and_is_done_once() -> None:
    cache = Cache(torch.bfloat16)
    before = cache.pages.clone()
    for _ in range(2):
        cache.prove()
    assert torch.equal(cache.pages, before)
    assert cache.writes == 1
