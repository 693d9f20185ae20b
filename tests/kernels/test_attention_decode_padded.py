"""Decode with head sizes without a kernel of their own, on kernels that pad them (see
test_attention_padded.py)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hk_backend.kernels import KernelEntry
from hk_backend.ops import PagedKV
from tests.kernels.attention_decode_launch import DecodeLaunch
from tests.kernels.attention_launch import PADDED, SWEPT, logical, passes
from tests.kernels.cover import covered, family
from tests.kernels.test_attention_padded import SIZES, beside_nan, case_of
from tests.ops.cases import Case, make
from tests.seed import fixed

WHOLE, SHARED = 1, 5
"""Workgroups of a KV head that have all keys of most requests, and ones that share them."""
CASE = Case(((1, 333), (3, 64), (0, 5), (2, 2), (1, 900)), 4, 2, block_size=32)


def padded(**axes: Any) -> Any:
    return covered("attention_decode", SWEPT, padded=(True,), **axes)


@padded(turn=range(5))
def test_every_head_size(entry: KernelEntry, turn: int) -> None:
    """Each kernel takes at least a fifth of the sizes: for keys and values alike, and beside any
    other."""
    random, sizes = fixed(f"sizes {entry.name}"), list(SIZES[int(entry.facts["head_size"])])
    own = random.sample(sizes, len(sizes))[turn::5]
    for size in own:
        other = random.choice((size, size, random.randrange(8, size + 1, 8)))
        both = random.choice(((size, other), (other, size)))
        call = make(case_of(entry, both, CASE))
        passes(DecodeLaunch.shared(entry, call, random.choice((WHOLE, SHARED))))


@padded(keys=("paged", "tokens"), shares=(WHOLE, SHARED))
def test_what_lies_beside_a_row(entry: KernelEntry, shares: int) -> None:
    """NaN lies between heads of queries, keys and values, and never reaches a score."""
    for sizes in PADDED[int(entry.facts["head_size"])]:
        call = make(case_of(entry, sizes, CASE))
        call["query"] = beside_nan(call["query"])
        call["paged_kv"] = with_nan_beside(call["paged_kv"])
        passes(DecodeLaunch.shared(entry, call, shares))


def with_nan_beside(cache: PagedKV) -> PagedKV:
    """The same keys and values in rows of one width, behind each of which there is NaN."""
    width = max(cache.head_size, cache.value_size)

    def widened(rows: torch.Tensor) -> torch.Tensor:
        channels = rows.shape[3]
        wide = torch.full((*rows.shape[:3], width + 24), math.nan, dtype=rows.dtype)
        wide[..., :channels] = rows
        return wide[..., :channels]

    key, value = (logical(cache, view) for view in (cache.key, cache.value))
    return PagedKV.from_views(widened(key), "B H N D", widened(value), "B H N D")


@padded(keys=("tokens",), shares=(WHOLE, SHARED))
def test_a_score_of_minus_infinity_has_no_weight(entry: KernelEntry, shares: int) -> None:
    """Past a row's end, lanes fetch its first channels once more: infinity times zero would be
    NaN."""
    sizes = PADDED[int(entry.facts["head_size"])][0]
    call = make(case_of(entry, sizes, Case(((1, 700),), 2, 1)))
    call["query"][:, :, 0] = call["query"][:, :, 0].abs() + 1
    cache = call["paged_kv"]
    blocks = call["block_table"][0, :700:7].long()
    logical(cache, cache.key)[blocks, 0, 0, 0] = -math.inf
    passes(DecodeLaunch.shared(entry, call, shares))


@padded(shares=(WHOLE, SHARED))
def test_values_of_another_head_stay_there(entry: KernelEntry, shares: int) -> None:
    """NaN in another KV head's values, behind a row, reaches the output of that head alone."""
    for sizes in PADDED[int(entry.facts["head_size"])][:3]:
        call = make(case_of(entry, sizes, CASE))
        values = call["paged_kv"].value
        split = entry.facts["keys"] == "split"
        by_head = values.tensor if split else logical(call["paged_kv"], values)
        by_head[:, 1] = math.nan
        out = passes(DecodeLaunch.shared(entry, call, shares)).out
        assert out[0, 2:].isnan().all()
        assert not out[0, :2].isnan().any()


@pytest.mark.parametrize("size", [128, 256])
def test_kernels_exist_for_the_sizes_of_prefill(size: int) -> None:
    """Decode has every layout that prefill's padded kernels read, but for packed keys."""

    def layouts(operator: str) -> set[tuple[Any, ...]]:
        return {
            (entry.facts["dtype"], entry.facts["keys"])
            for entry in family(operator)
            if entry.facts["padded"] and entry.facts["head_size"] == size
        }

    wanted = {each for each in layouts("attention_prefill") if each[1] != "packed"}
    assert wanted
    assert layouts("attention_decode") == wanted
